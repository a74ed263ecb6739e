package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// TestScriptsDoInMiniredisAsInRedis runs our scripts, with the same arguments at random, in a real Redis and in a fake, and compares every
// reply, every error, what the locks hold and what was published.
func TestScriptsDoInMiniredisAsInRedis(t *testing.T) {
	t.Parallel()
	space := redistest.Shared(t)
	patient := func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute }
	sides := []*side{{name: "Redis", rdb: space.Client(t, patient)}, {name: "miniredis", rdb: redistest.StartFake(t).Client(t, patient)}}
	for _, s := range sides {
		b, err := backend.NewRedis(s.rdb, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.b = b
		defer func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	seeds := uint64(20)
	if Full {
		seeds = 300
	}
	for seed := range seeds {
		tw := &twins{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), sides: sides}
		for i := range 2 {
			tw.places = append(tw.places, newTwinPlace(fmt.Sprintf("%s%d:", space.Prefix(), seed), fmt.Sprintf("n%d{x}", i)))
		}
		tw.run()
		if t.Failed() {
			return
		}
	}
}

// twins are two servers that are told the same.
type twins struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	places []twinPlace
	sides  []*side
	log    []string
}

// twinPlace is where a lock lives.
type twinPlace struct {
	key     string
	channel string
	keys    []string // key and token counter
	waited  []string // with the clients that wait
	fair    []string // with those of the queue
}

func newTwinPlace(prefix, name string) twinPlace {
	key := prefix + name
	keys := []string{key, script.FenceKey(prefix, key)}
	return twinPlace{key, script.Channel(key), keys, append(slices.Clone(keys), script.WaitSetKey(key)), append(slices.Clone(keys),
		script.QueueKey(key), script.QueueTimeoutsKey(key), script.QueueAliveKey(key))}
}

// permitScript gives a permit, for the renewals to find.
var permitScript = backend.NewScript("permit", `return redis.call('zadd', KEYS[1] .. ':timeout', ARGV[2], ARGV[1])`)

// waitersScript says who waits.
var waitersScript = backend.NewScript("waiters", `return redis.call('zrange', KEYS[1], 0, -1)`)

type side struct {
	name string
	rdb  *redis.Client
	b    *backend.Redis
	sub  backend.PubSub
	last int64 // the last token
}

const twinControl = "twin:control:"

var twinOwners = []string{"a:0-1", "a:0-2", "b:9-7", "java:1", "x-", "-5"}

func (tw *twins) run() {
	ctx := tw.t.Context()
	channels := []string{twinControl + "a:0", twinControl + "b:9", twinControl + "java"}
	for _, p := range tw.places {
		channels = append(channels, p.channel, p.channel+":1234567890", p.channel+":1987654321")
		for _, owner := range twinOwners {
			channels = append(channels, p.channel+":"+owner)
		}
	}
	for _, s := range tw.sides {
		sub, err := s.b.Subscribe(ctx, backend.Endpoint{})
		if err != nil {
			tw.t.Fatal(err)
		}
		defer func() { _ = sub.Close() }()
		s.sub, s.last = sub, 0
		if err := sub.Subscribe(ctx, channels...); err != nil {
			tw.t.Fatal(err)
		}
		for range channels {
			if ev, err := sub.Receive(ctx, time.Minute); err != nil || ev.Kind != backend.Subscribed {
				tw.t.Fatalf("%s: %+v, %v", s.name, ev, err)
			}
		}
	}
	for range 40 {
		tw.step()
	}
	var first []string
	for i, s := range tw.sides {
		heard := tw.heard(s, len(first))
		if i == 0 {
			first = heard
		}
		if !slices.Equal(heard, first) {
			tw.t.Errorf("seed %d: published by Redis %q, by %s %q, after\n%s", tw.seed, first, s.name, heard, strings.Join(tw.log, "\n"))
		}
	}
}

// heard is what was published to a side so far, and at least so many messages: in miniredis an answer may overtake them.
func (tw *twins) heard(s *side, least int) (all []string) {
	if err := s.sub.Ping(tw.t.Context()); err != nil {
		tw.t.Fatal(err)
	}
	for answered := false; !answered || len(all) < least; {
		ev, err := s.sub.Receive(tw.t.Context(), time.Minute)
		if err != nil {
			tw.t.Fatalf("%s: %v, after %q", s.name, err, all)
		}
		if ev.Kind == backend.Pong {
			answered = true
			continue
		}
		all = append(all, ev.Channel+" "+aTime.ReplaceAllString(ev.Payload, "now"))
	}
	return all
}

var aTime = regexp.MustCompile(`\b[0-9]{16}\b`)

// step does one thing to both.
func (tw *twins) step() {
	pick := func(n int) int { return tw.random.IntN(n) }
	p := tw.places[pick(len(tw.places))]
	owner, lease := twinOwners[pick(len(twinOwners))], int64(3_600_000*(1+pick(5)))
	notAfter := []int64{0, 1, 1 << 52}[pick(3)] // unknown, long past, far off
	trace := []string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}[pick(2)]
	counter := []string{"", p.keys[1], p.keys[1]}[pick(3)]
	entry := func() string {
		return []string{"", "1234567890", "5", "1234567890 3600000 - " + owner + "9", "1987654321 3600000 00-trace " + owner, "1987654321 1 - a:0-1"}[pick(6)]
	}
	switch n := pick(27); {
	case n < 7:
		keys := p.keys
		if pick(4) == 0 {
			keys = keys[:1]
		}
		if pick(2) == 0 {
			tw.call(script.Acquire.Script, p.waited, owner, lease, notAfter, trace, entry(), pick(3), entry())
			break
		}
		tw.call(script.Acquire.Script, keys, owner, lease, notAfter, trace)
	case n < 9:
		tw.call(script.Release.Script, p.keys[:1], owner, "publish", "numsub", pick(3), counter, entry(), entry(), lease)
	case n < 12:
		tw.call(script.HandOver.Script, p.keys, owner, "publish", "numsub", pick(3), counter, entry(), entry(), lease, twinOwners[pick(len(twinOwners))]+"9", lease, notAfter, trace, pick(2))
	case n < 15:
		args := script.NewRenewArgs(notAfter, len(tw.places))
		for _, q := range tw.places {
			kind := []script.Holding{script.HoldsField, script.HoldsField, script.HoldsMark, script.HoldsPermit}[pick(4)]
			args.Add(kind, q.key, twinOwners[pick(len(twinOwners))], lease-int64(pick(2)))
		}
		call := args.Call("")
		tw.call(script.Renew, call.Keys, call.Args...)
	case n < 16:
		tw.call(script.Force.Script, p.keys[:1], p.channel, "publish", twinControl, "twin")
	case n < 20:
		tw.call(script.FairAcquire.Script, p.fair, owner, lease, notAfter, trace, []int64{0, lease}[pick(2)], p.channel, "publish")
	case n < 22:
		tw.call(script.FairRelease.Script, p.fair, owner, p.channel, "publish")
	case n < 23:
		tw.call(script.Force.Script, p.fair, p.channel, "publish", twinControl, "twin")
	case n < 24:
		tw.call(permitScript, p.keys[:1], owner, lease)
	case n < 25:
		tw.do("del", p.key)
	case n < 26 && pick(3) == 0:
		tw.do("set", p.key, "text")
	case pick(6) == 0:
		tw.do("set", p.keys[1], []string{"5000000000000000", "no number"}[pick(2)])
	}
	for _, q := range tw.places {
		tw.call(script.Inspect.Script, q.keys[:1])
	}
	tw.call(waitersScript, p.waited[2:])
}

// do sends a command to both.
func (tw *twins) do(args ...any) {
	tw.t.Helper()
	tw.log = append(tw.log, fmt.Sprint(args...))
	for _, s := range tw.sides {
		if err := s.rdb.Do(tw.t.Context(), args...).Err(); err != nil {
			tw.t.Fatalf("%s: %v", s.name, err)
		}
	}
}

// call runs a script on both and compares.
func (tw *twins) call(script *backend.Script, keys []string, args ...any) {
	tw.t.Helper()
	var first string
	for i, s := range tw.sides {
		reply, err := s.b.Eval(context.Background(), backend.Call{Script: script, SendSource: true, Keys: keys, Args: slices.Clone(args)})
		got := s.plain(script, reply, err)
		if i == 0 {
			first = got
			tw.log = append(tw.log, fmt.Sprintf("%s %q %v -> %s", script.Name, keys, args, got))
		}
		if strings.Contains(got, "(new function): table: 0x") && strings.HasPrefix(first, "error") {
			continue // miniredis doesn't say what the script does
		}
		if got != first {
			tw.t.Fatalf("seed %d: Redis answers %s, %s %s, after\n%s", tw.seed, first, s.name, got, strings.Join(tw.log, "\n"))
		}
	}
}

// plain describes a reply without what depends on the time. A clock is "now". A token has only "risen" or not. A long
// remaining time is rounded to minutes. An error doesn't name its script.
func (s *side) plain(script *backend.Script, reply any, err error) string {
	if err != nil {
		var answer interface{ RedisError() }
		text, _, _ := strings.Cut(err.Error(), " script:")
		if strings.Contains(text, "user_script") { // a mistake of the script's own, with its line
			text = "ERR user_script"
		}
		return fmt.Sprintf("error %q (of the server: %v)", text, errors.As(err, &answer))
	}
	if n, ok := reply.(int64); ok && n > 1<<50 { // the time, as the token
		risen := n > s.last
		s.last = n
		return fmt.Sprintf("token, risen: %v", risen)
	}
	list, ok := reply.([]any)
	if !ok {
		return fmt.Sprintf("%#v", reply)
	}
	now := map[string]int{"renew": 0, "inspect": 0, "acquire": 1, "release": 1, "hand_over": 1, "fair_acquire": 1, "fair_release": 1}[script.Name]
	var words []string
	for i, v := range list {
		word := fmt.Sprintf("%#v", v)
		switch n, isNumber := v.(int64); {
		case i == now && isNumber && n > 1<<50:
			word = "now"
		case i == 2 && script.Name != "renew" && isNumber && n > 1<<50:
			word = fmt.Sprintf("token, risen: %v", n > s.last)
			s.last = n
		case isNumber && n > 100_000:
			word = fmt.Sprintf("%d min", (n+30_000)/60_000)
		}
		if text, isText := v.(string); isText {
			if token, trace, _ := strings.Cut(strings.TrimLeft(text, "+~"), " "); len(token) == 16 && strings.Trim(token, "0123456789") == "" {
				n, _ := strconv.ParseInt(token, 10, 64)
				word = fmt.Sprintf("token of the last grant: %v, %s", n <= s.last, trace)
				word += ", marked " + text[:len(text)-len(strings.TrimLeft(text, "+~"))]
			}
		}
		words = append(words, word)
	}
	if script.Name == "inspect" { // a hash with a long value has no order
		pairs := slices.Collect(slices.Chunk(words[2:], 2))
		slices.SortFunc(pairs, slices.Compare)
		words = append(words[:2:2], slices.Concat(pairs...)...)
	}
	return strings.Join(words, " | ")
}

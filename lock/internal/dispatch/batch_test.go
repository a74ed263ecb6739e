package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// A batch has the effects, replies and messages of its operations run one after the other, whatever they find in Redis,
// and whichever commands or channels an ACL forbids.
func TestBatch_AsOneByOne(t *testing.T) {
	t.Parallel()
	rounds := 25
	if full {
		rounds = 500
	}
	for _, rules := range []string{ // a key that is forbidden has the whole script refused: TestBatch_ForbiddenKey of lock
		"", "-exists", "-hset", "-pexpire", "-del", "-publish", "-hmget", "-lindex", "resetchannels &redisson_lock__channel:{job:[0-4]}",
	} {
		t.Run(strings.TrimSpace("+@all "+rules), func(t *testing.T) {
			t.Parallel()
			words := append([]string{"on", ">secret", "~*", "&*", "+@all"}, strings.Fields(rules)...)
			srv := redistest.Start(t, redistest.WithUser("app", words...))
			seed := rand.Uint64()
			b := &bench{t: t, admin: srv.Client(t), random: rand.New(rand.NewPCG(seed, 1))}
			b.app = srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
			b.messages = b.admin.PSubscribe(t.Context(), "*")
			t.Cleanup(func() { _ = b.messages.Close() })
			if _, err := b.messages.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			waiters := b.admin.Subscribe(t.Context(), script.Channel("job:4"), script.Channel("job:5"), script.Channel("job:6"))
			t.Cleanup(func() { _ = waiters.Close() })
			for range 3 {
				if _, err := waiters.Receive(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for round := range rounds {
				b.counters = []int{1, 5, 10}[round%3]
				world, w := b.world(), &worker{calls: b.calls()}
				script.Pack(&w.batch, w.calls)
				single := b.play(world, w, b.oneByOne)
				before := b.mistakes()
				batch := b.play(world, w, b.asBatch)
				if n := b.mistakes(); rules == "" && n != before {
					t.Errorf("commands that make no sense: %s, before %s", n, before)
				}
				if !slices.Equal(single, batch) {
					t.Fatalf("round %d of seed %d, after\n%s\none by one\n%s\nin a batch\n%s", round, seed, strings.Join(world, "\n"),
						strings.Join(single, "\n"), strings.Join(batch, "\n"))
				}
			}
		})
	}
}

// bench is where operations are tried at a server.
type bench struct {
	t          *testing.T
	admin, app *redis.Client
	messages   *redis.PubSub
	random     *rand.Rand
	counters   int // that the names share
}

// mistakes is how often the server has answered with an error for which it has no name.
func (b *bench) mistakes() string {
	_, rest, _ := strings.Cut(b.admin.Info(b.t.Context(), "errorstats").Val(), "errorstat_ERR:")
	count, _, _ := strings.Cut(rest, "\r\n")
	return count
}

func (b *bench) pick(texts ...string) string { return texts[b.random.IntN(len(texts))] }

func (b *bench) name() string  { return fmt.Sprint("job:", b.random.IntN(9)) }
func (b *bench) owner() string { return b.pick("me", "me", "me", "you") }

// counter is that of a name: some share one, as the names of a slot do.
func (b *bench) counter(name string) string {
	return fmt.Sprint("fence:", int(name[len(name)-1]-'0')%b.counters)
}

// world is what the operations find: commands that make it.
func (b *bench) world() (commands []string) {
	free := b.random.IntN(3) == 0
	for i := range b.random.IntN(7) {
		name := fmt.Sprint("job:", i)
		if b.random.IntN(3) == 0 {
			commands = append(commands, "DEL "+b.counter(name), b.pick("SET", "SET", "SET", "RPUSH")+" "+b.counter(name)+" "+b.pick("12", "abc", "3000000000000000"))
		}
		if free {
			continue
		}
		if b.random.IntN(2) == 0 { // somebody waits for a FairMutex, the first is perhaps dead
			key := script.QueueKey(name)
			commands = append(commands, "RPUSH "+key+" fair:1 fair:2", "ZADD "+script.QueueTimeoutsKey(name)+" 9000000000000 fair:2 "+b.pick("5", "9000000000000")+" fair:1")
		}
		switch b.random.IntN(11) {
		case 0:
			commands = append(commands, "HSET "+name+" java 2")
		case 1:
			commands = append(commands, "SET "+name+" text")
		case 2:
			commands = append(commands, "HSET "+name+" you 1 @lockdog 12", "PEXPIRE "+name+" 5000000")
		case 3:
			commands = append(commands, "HSET "+name+" me 1 @lockdog +12", "ZADD "+script.WaitSetKey(name)+" 5 "+"1000000001")
		case 10:
			commands = append(commands, "HSET "+name+" me 1 @lockdog +12", "PEXPIRE "+name+" 5000000")
		case 4:
			commands = append(commands, "HSET "+name+" me 1 @lockdog +~12")
		case 5:
			commands = append(commands, "HSET "+name+" me 1 @lockdog +~12", "ZADD "+script.WaitSetKey(name)+" 5 "+"1000000001")
		case 6, 7, 8, 9:
			commands = append(commands, "HSET "+name+" me 1 @lockdog 12")
		}
	}
	return commands
}

// calls are some operations.
func (b *bench) calls() (all []*Call) {
	same, notAfter := b.random.IntN(2) == 0, b.pick("0", "0", "0", "1", "3000000000000000") // mostly they are alike
	other := func(usual any, texts ...string) any {
		if same || b.random.IntN(4) > 0 {
			return usual
		}
		return b.pick(texts...)
	}
	releaser := make(map[string]string) // one of a lock: calls have no order, and whether another finds it taken or gone may go either way
	for range 1 + b.random.IntN(12) {
		c, name := &Call{}, b.name()
		if releaser[name] == "" {
			releaser[name] = b.owner()
		}
		if b.random.IntN(2) == 0 {
			c.Call = backend.Call{Script: script.Acquire.Script, Keys: []string{name, b.counter(name)}}
			c.Args = []any{b.owner(), other(1000000, "2000000"), other(notAfter, "1", "3000000000000000"), other("", "00-parent-01")}
			if b.random.IntN(6) == 0 {
				c.Keys, c.Args = append(c.Keys, script.WaitSetKey(name)), append(c.Args, "1000000002", "0", b.pick("", "1000000001"))
			}
		} else {
			c.Call = backend.Call{Script: script.Release.Script, Keys: []string{name}}
			c.Args = []any{releaser[name], "publish", "numsub", other("1", "0", "2"), b.counter(name), other("", "1000000001"), "", "0"}
			if b.random.IntN(2) == 0 {
				c.Args[6], c.Args[7] = "1000000002 3000000 "+b.pick("-", "00-parent-01")+" "+b.pick("other", "next"), "1000000"
			}
			if b.random.IntN(4) == 0 {
				c.Script, c.Keys = script.HandOver.Script, append(c.Keys, b.counter(name))
				c.Args = append(c.Args, "next", other(1000000, "2000000"), other(notAfter, "1", "3000000000000000"), "", other("0", "1"))
			}
		}
		all = append(all, c)
	}
	return all
}

// play runs the calls in the world, and says all that can be seen of it.
func (b *bench) play(world []string, w *worker, run func(*worker) []any) (seen []string) {
	ctx := b.t.Context()
	b.admin.FlushAll(ctx)
	for _, command := range world {
		var words []any
		for _, word := range strings.Fields(command) {
			words = append(words, word)
		}
		if err := b.admin.Do(ctx, words...).Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	drawn := make(map[string]int64)
	for i, answer := range run(w) {
		c := w.calls[i]
		text := b.general(answer)
		if token := granted(c, answer); token > 0 {
			text = "granted"
			if token <= drawn[c.Keys[1]] {
				b.t.Errorf("a token of %d after %d", token, drawn[c.Keys[1]])
			}
			drawn[c.Keys[1]] = token
		}
		seen = append(seen, fmt.Sprint(c.Keys, c.Args, " -> ", text))
	}
	for name, last := range drawn {
		if text := b.admin.Get(ctx, name).Val(); text != fmt.Sprint(last) {
			b.t.Errorf("the counter %s is at %s, and the last token was %d", name, text, last)
		}
	}
	return append(append(seen, b.state(ctx)...), b.heard(ctx)...)
}

// granted is the token of a lock that the call took, or handed over; 0: it did neither.
func granted(c *Call, answer any) int64 {
	if c.Script == script.Acquire.Script {
		r, _ := script.ParseAcquire(answer)
		return r.Token
	}
	r, _ := script.ParseRelease(answer)
	return r.Token // 0 where it was granted to another client
}

func (b *bench) oneByOne(w *worker) (answers []any) {
	for _, c := range w.calls {
		reply, err := b.app.Eval(b.t.Context(), c.Script.Source, c.Keys, c.Args...).Result()
		if err != nil {
			reply = err.Error()
		}
		answers = append(answers, reply)
	}
	return answers
}

func (b *bench) asBatch(w *worker) (answers []any) {
	call := w.batch.Call(false)
	reply, err := b.app.Eval(b.t.Context(), script.Batch.Source, call.Keys, call.Args...).Result()
	if err == nil {
		err = w.unpack(reply)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range w.calls {
		answers = append(answers, c.value)
	}
	return answers
}

// state is what the server holds.
func (b *bench) state(ctx context.Context) (seen []string) {
	for _, key := range b.admin.Keys(ctx, "*").Val() {
		value := ""
		switch b.admin.Type(ctx, key).Val() {
		case "hash":
			value = b.general(fmt.Sprint(b.admin.HGetAll(ctx, key).Val()))
		case "list":
			value = fmt.Sprint(b.admin.LRange(ctx, key, 0, -1).Val())
		case "zset":
			value = b.general(fmt.Sprint(b.admin.ZRange(ctx, key, 0, -1).Val()))
		default:
			value = b.general(b.admin.Get(ctx, key).Val())
		}
		seen = append(seen, fmt.Sprint(key, ": ", value, b.admin.PTTL(ctx, key).Val().Round(time.Minute)))
	}
	slices.Sort(seen)
	return seen
}

// heard are the messages of one play. Those of different locks may come in any order.
func (b *bench) heard(ctx context.Context) (seen []string) {
	b.admin.Publish(ctx, "end", "")
	for {
		m, err := b.messages.ReceiveMessage(ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		if m.Channel == "end" {
			slices.Sort(seen)
			return seen
		}
		seen = append(seen, m.Channel+" <- "+b.general(m.Payload))
	}
}

var (
	aTime    = regexp.MustCompile(`\b1[0-9]{15}\b`)
	aLease   = regexp.MustCompile(`\b[1-9][0-9]{5,6}\b`)
	anywhere = regexp.MustCompile(` script: .*|@?user_script:[0-9]+: ?`)
)

// general is an answer without the time, what is left of leases, and where in a script an error was met.
func (b *bench) general(answer any) string {
	text := anywhere.ReplaceAllString(fmt.Sprint(answer), "")
	return aLease.ReplaceAllString(aTime.ReplaceAllString(text, "T"), "lease")
}

// A reply without one part for each call is an error.
func TestBatch_Unreadable(t *testing.T) {
	t.Parallel()
	w := &worker{calls: []*Call{{}, {}, {}}}
	for _, reply := range []any{
		nil, "text", int64(3),
		[]any{},
		[]any{int64(3)},
		[]any{int64(2), int64(1)},
		[]any{int64(4), int64(1)},
		[]any{int64(3), int64(1), int64(1)},
		[]any{int64(3), int64(1), int64(1), int64(1)},
		[]any{int64(0), int64(1), int64(3), int64(1)},
		[]any{int64(-1), int64(1)},
		[]any{"3", int64(1)},
	} {
		if err := w.unpack(reply); !errors.Is(err, script.ErrReply) {
			t.Errorf("%v: %v", reply, err)
		}
	}
	if err := w.unpack([]any{int64(1), int64(7), int64(2), "text"}); err != nil || w.calls[0].value != int64(7) || w.calls[2].value != "text" {
		t.Errorf("%v, %v, %v", err, w.calls[0].value, w.calls[2].value)
	}
}

// A replica refuses a batch with an error reply, as it refuses a single call: after an error within a list go-redis would keep the connection,
// which no longer leads to a primary.
func TestBatch_Replica(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.Start(t).Client(t), t.Context()
	const key = "job:held"
	rdb.HSet(ctx, key, "holder", 1, "@lockdog", 12)
	rdb.PExpire(ctx, key, time.Minute)
	if err := rdb.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil { // nobody is there
		t.Fatal(err)
	}
	w := &worker{calls: []*Call{{}, {}}}
	for i, name := range []string{key, "job:new"} { // for the first nothing is written
		script.Acquire.Args(&w.calls[i].Request, script.AcquireArgs{Lock: script.Lock{Key: name, Counter: "fence"}, Owner: "me", Lease: int64(1000)})
	}
	script.Pack(&w.batch, w.calls)
	batch := w.batch.Call(false)
	for what, call := range map[string]backend.Call{
		"a batch":              batch,
		"a release of several": {Script: script.MultiRelease, Keys: []string{key}, Args: []any{"publish", "holder", "channel"}},
	} {
		got, err := rdb.Eval(ctx, call.Script.Source, call.Keys, call.Args...).Result()
		if err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	if err := rdb.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if left := rdb.PTTL(ctx, key).Val(); rdb.HGet(ctx, key, "holder").Val() != "1" || left <= 30*time.Second || left > time.Minute {
		t.Errorf("the lock has changed: %v, for %v", rdb.HGetAll(ctx, key).Val(), left)
	}
}

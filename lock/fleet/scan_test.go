package fleet_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
)

// hold writes a lock as acquire.lua does.
func hold(ctx context.Context, pipe redis.Pipeliner, key string) {
	pipe.HSet(ctx, key, owner("host/1", 7), "1", "@lockdog", fmt.Sprint(time.Now().UnixMicro()))
	pipe.PExpire(ctx, key, time.Hour)
}

// permit writes a semaphore of which a permit is held.
func permit(ctx context.Context, pipe redis.Pipeliner, key string) {
	pipe.Set(ctx, key, 1, time.Hour)
	set := "{" + key + "}:timeout"
	if strings.Contains(key, "{") {
		set = key + ":timeout"
	}
	pipe.ZAdd(ctx, set, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "0123456789abcdef"})
	pipe.PExpire(ctx, set, time.Hour)
}

func (r *rig) write(how func(context.Context, redis.Pipeliner, string), names ...string) {
	r.t.Helper()
	for some := range slices.Chunk(names, 1000) {
		pipe := r.rdb.Pipeline()
		for _, name := range some {
			how(r.t.Context(), pipe, r.prefix+name)
		}
		if _, err := pipe.Exec(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Names and patterns mean the same to Redis, which matches the locks, and here, where those of semaphores are matched.
func TestPatterns(t *testing.T) {
	t.Parallel()
	names := []string{
		"a", "b", "ab", "abc", "a*c", "a?c", "a[b]c", `a\c`, "a^c", "a-c", "a]c", "é", "aéc", "\xff", "a\xffc", "a/c", "a/b/c", "a\x00c", "a\nb", "\x1b[31m", " ", "{a}", "a{b}c", "orders:1",
		"orders:22", "aaaaaaaaaaaaaaaaaaaaaaaab", "*", "[", `\`, "[a-c]",
	}
	patterns := []string{
		"*", "", "a", "?", "??", "a?c", "a*c", "a*", "*c", `a\*c`, `a\?c`, `a\[b\]c`, `a\\c`, "[a-c]", "[c-a]", "[^a]", "[!a]", "a[b?*^]c", `a[\]]c`, "a[^b]c", "a[]c", "a/*", "a/?", "*/*", "**a**",
		"a*a*a*a*a*a*a*a*b", "orders:?", "orders:*[0-2]", "é", "a??c", "\xff", "a\x00c", `\*`, `\[`, `\\`, `\a`, "[[]", "nothing", `\[a-c\]`, "]", "*]*", "[-z]", "[a-]c]", "{a}", "*{*",
	}
	locks, semaphores := newRig(t), newRig(t)
	locks.write(hold, names...)
	semaphores.write(permit, names...)
	found := 0
	for _, pattern := range patterns {
		want, errs := all(t.Context(), locks.reader, pattern)
		got, errs2 := all(t.Context(), semaphores.reader, pattern)
		if len(errs) != len(errs2) || pattern != "a[]c" && len(errs) > 0 {
			t.Errorf("%q: %v and %v", pattern, errs, errs2)
		}
		if !slices.Equal(namesOf(want), namesOf(got)) {
			t.Errorf("%q matches the locks %q, and the semaphores %q", pattern, namesOf(want), namesOf(got))
		}
		found += len(want)
	}
	if found < 2*len(names) {
		t.Errorf("the patterns matched only %d names", found)
	}
	for _, name := range names {
		if l := locks.look(name); l.Name != name || l.Held != 1 {
			t.Errorf("%q: %+v", name, l)
		}
	}
	for _, pattern := range []string{"[", "a[b", `a\`, `[a\]`, "[^", "x[a-]"} {
		locks, errs := all(t.Context(), locks.reader, pattern)
		if len(locks) != 0 || len(errs) != 1 || !errors.Is(errs[0], fleet.ErrInvalid) || !strings.Contains(errs[0].Error(), fmt.Sprintf("%q", pattern)) {
			t.Errorf("%q: %v, %v", pattern, locks, errs)
		}
	}
}

func namesOf(locks []fleet.Lock) []string { return names(locks) }

func TestPrefix(t *testing.T) {
	t.Parallel()
	space := redistest.Shared(t)
	rdb := space.Client(t)
	prefixes := []string{"app:", "app[1]*:", `a\b?:`, "{app}:", "app"}
	for i, prefix := range prefixes {
		r := rigOf(t, rdb, space.Prefix()+prefix)
		r.write(hold, fmt.Sprint("lock", i))
		r.write(permit, fmt.Sprint("semaphore", i))
	}
	for i, prefix := range prefixes[:4] {
		r := rigOf(t, rdb, space.Prefix()+prefix)
		want := []string{fmt.Sprint("lock", i), fmt.Sprint("semaphore", i)}
		if got := names(r.list("")); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", prefix, got, want)
		}
		r.wantList("s*", want[1])
		if l := r.look(want[0]); l.Key != space.Prefix()+prefix+want[0] || l.Name != want[0] || l.Held != 1 {
			t.Errorf("%+v", l)
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0, redistest.WithConfig("cluster-require-full-coverage", "no"))
	r := rigOf(t, redistest.Open(t, cluster.Universal()), "app:")
	c := r.client("c")
	down := cluster.Nodes[2]
	var want []string
	onNode := map[*redistest.Server]int{}
	for i := range 30 {
		name := fmt.Sprintf("job:%02d", i)
		want = append(want, name)
		node := cluster.Owner(t, cluster.Slot(t, "app:"+name))
		onNode[node]++
		switch {
		case node == down: // by hand: nobody could release them
			r.write(hold, name)
		case i%3 == 0:
			r.take(c.Mutex(name))
		case i%3 == 1:
			r.take(c.RWMutex(name).RLocker())
		default:
			if err := c.Semaphore(name).EnsurePermits(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			r.take(c.Semaphore(name))
		}
	}
	if len(onNode) != 3 {
		t.Fatalf("%d nodes have locks", len(onNode))
	}
	check := func(l fleet.Lock) {
		t.Helper()
		if l.Held != 1 || l.Kind != fleet.Semaphore && (len(l.Holders) != 1 || !slices.Contains([]string{"c", "host/1"}, l.Holders[0].ClientID) || l.Holders[0].Token == 0) {
			t.Errorf("%+v", l)
		}
	}
	locks := r.list("")
	if got := names(locks); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, l := range locks {
		check(l)
		check(r.look(l.Name))
	}

	// A slot that has moved, or moves: the client doesn't know yet.
	slot := cluster.Slot(t, "app:job:00")
	from := cluster.Owner(t, slot)
	to := cluster.Nodes[0]
	if from == to {
		to = cluster.Nodes[1]
	}
	m := cluster.Migrate(t, slot, to)
	check(r.look("job:00"))
	m.MoveKeys(t, "app:job:00")
	check(r.look("job:00"))
	m.Finish(t)
	check(r.look("job:00"))
	if got := names(r.list("")); !slices.Equal(got, want) {
		t.Errorf("after a slot has moved: %q, want %q", got, want)
	}

	// The locks of a node that is down are missing, with one error, and all others are there.
	left := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return cluster.Owner(t, cluster.Slot(t, "app:"+name)) == down })
	missing := ""
	for _, name := range want {
		if !slices.Contains(left, name) {
			missing = name
		}
	}
	down.Kill(t)
	for range 3 {
		locks, errs := all(t.Context(), r.reader, "")
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), down.Addr()) {
			t.Errorf("errors: %v, want one of %s", errs, down.Addr())
		}
		if got := names(locks); !slices.Equal(got, left) {
			t.Errorf("%q, want %q", got, left)
		}
	}
	if l, err := r.reader.Look(t.Context(), missing); err == nil || errors.Is(err, fleet.ErrNotALock) || !strings.Contains(err.Error(), missing) {
		t.Errorf("%+v, %v", l, err)
	}
}

// What a server refuses is never taken for a lock that is missing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	password := rand.Text()
	reading := []string{"on", ">" + password, "~*", "+@read", "+ping", "+time"}
	srv := redistest.Start(t, redistest.WithUser("reader", reading...),
		redistest.WithUser("part", "on", ">"+password, "~app:o*", "~*{app:o*", "+@read", "+time"),
		redistest.WithUser("notime", "on", ">"+password, "~*", "+@read"),
		redistest.WithUser("nofields", append(slices.Clone(reading), "-hscan")...),
		redistest.WithUser("nosizes", append(slices.Clone(reading), "-hlen")...),
		redistest.WithUser("nomarks", append(slices.Clone(reading), "-get")...),
		redistest.WithUser("noleft", append(slices.Clone(reading), "-pttl")...),
		redistest.WithUser("nowaiters", append(slices.Clone(reading), "-zcard")...),
		redistest.WithUser("nowriters", append(slices.Clone(reading), "-zcount")...),
		redistest.WithUser("noqueue", append(slices.Clone(reading), "-lrange")...),
		redistest.WithUser("nodeadlines", append(slices.Clone(reading), "-zmscore")...),
		redistest.WithUser("noscan", append(slices.Clone(reading), "-scan")...))
	as := func(user string) *rig {
		return rigOf(t, srv.Client(t, func(o *redis.Options) { o.Username, o.Password, o.DisableIdentity = user, password, true }), "app:")
	}
	admin := rigOf(t, srv.Client(t), "app:")
	c := admin.client("c", lock.WithWaitGraph(0)) // whose records some may not read
	admin.take(c.Mutex("other"))
	admin.take(c.RWMutex("orders").RLocker())
	admin.take(c.FairMutex("only"))
	admin.wait(t.Context(), c.FairMutex("only"))
	admin.take(c.Mutex("old"))
	admin.wait(t.Context(), c.Mutex("old"))
	for _, name := range []string{"only", "old"} {
		admin.lookUntil(name, "nobody waits", func(l fleet.Lock) bool { return l.Waiting == 1 })
	}
	every := []string{"old", "only", "orders", "other"}
	as("reader").wantList("", every...)
	as("reader").look("only")

	admin.write(hold, "foreign1", "foreign2")
	part := as("part")
	locks, errs := all(t.Context(), part.reader, "")
	if got := names(locks); !slices.Equal(got, every) || len(errs) != 1 || !strings.Contains(errs[0].Error(), "NOPERM") || !strings.Contains(errs[0].Error(), "2 keys") {
		t.Errorf("%q, %v", got, errs)
	}
	if text := errs[0].Error(); !strings.Contains(text, `"foreign`) || strings.Contains(text, "app:") {
		t.Errorf("%s; it should name a lock, without the prefix", text)
	}
	part.wantList("o*", every...)
	if _, err := part.reader.Look(t.Context(), "foreign1"); err == nil || errors.Is(err, fleet.ErrNotALock) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("%v", err)
	}

	for user, name := range map[string]string{
		"notime": "other", "nofields": "other", "nosizes": "other", "nomarks": "orders", "noleft": "other", "nowaiters": "old", "nowriters": "orders", "noqueue": "only",
		"nodeadlines": "only", "noscan": "",
	} {
		r := as(user)
		locks, errs := all(t.Context(), r.reader, "")
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), "NOPERM") || slices.Contains(names(locks), name) {
			t.Errorf("%s: %q, %v", user, names(locks), errs)
		}
		if name == "" {
			continue
		}
		if l, err := r.reader.Look(t.Context(), name); err == nil || errors.Is(err, fleet.ErrNotALock) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%s: %+v, %v", user, l, err)
		}
	}
}

func TestServerDown(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := rigOf(t, srv.Client(t, func(o *redis.Options) { o.MaxRetries = -1 }), "")
	r.write(hold, "job")
	srv.Kill(t)
	if locks, errs := all(t.Context(), r.reader, ""); len(locks) != 0 || len(errs) != 1 || !strings.Contains(errs[0].Error(), srv.Addr()) {
		t.Errorf("%v, %v", locks, errs)
	}
	if l, err := r.reader.Look(t.Context(), "job"); err == nil || errors.Is(err, fleet.ErrNotALock) {
		t.Errorf("%+v, %v", l, err)
	}
}

// An answer that is cut off after SCAN is an error.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := rigOf(t, srv.Client(t), "")
	r.write(hold, "a", "b")
	for _, command := range []string{"hlen", "hscan", "time"} {
		proxy := redistest.NewProxy(t, srv.Addr())
		reader := rigOf(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1}), "").reader
		proxy.SetRule(redistest.When(redistest.Up, redistest.Cut, redistest.Contains("\r\n"+command+"\r\n")))
		locks, errs := all(t.Context(), reader, "")
		if len(locks) != 0 || len(errs) != 1 {
			t.Errorf("%s: %v, %v", command, locks, errs)
		}
		if l, err := reader.Look(t.Context(), "a"); err == nil || errors.Is(err, fleet.ErrNotALock) {
			t.Errorf("%s: %+v, %v", command, l, err)
		}
	}
}

// Locks that come and go while they are read.
func TestReadDuringDeletion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := make([]string, 500)
	for i := range all {
		all[i] = fmt.Sprintf("job:%03d", i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	rdb := redistest.Open(t, &redis.UniversalOptions{Addrs: []string{r.rdb.(*redis.Client).Options().Addr}})
	for range 2 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := r.prefix + all[n%len(all)]
				pipe := rdb.TxPipeline()
				switch n % 3 {
				case 0:
					pipe.Del(ctx, key)
				default:
					pipe.Del(ctx, key)
					now := time.Now().UnixMicro() // as the number of the owner, by which it is known whose token that is
					pipe.HSet(ctx, key, owner("c", int(now)), "1", "@lockdog", fmt.Sprint(now))
					pipe.PExpire(ctx, key, time.Hour)
				}
				_, _ = pipe.Exec(ctx)
			}
		})
	}
	check := func(l fleet.Lock) {
		if l.Held == 0 {
			return
		}
		if h := l.Holders[0]; h.Owner != owner("c", int(h.Token)) || h.Remaining <= 0 || l.Kind != fleet.Mutex {
			t.Errorf("another's token, or no time: %+v", l)
		}
	}
	for i := range 100 {
		if i%10 == 0 {
			for _, l := range r.list("") {
				check(l)
			}
		}
		check(r.look(all[0]))
	}
	cancel()
	wg.Wait()
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	list := make([]string, 300)
	for i := range list {
		list[i] = fmt.Sprint("job", i)
	}
	r.write(hold, list...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var locks int
	var errs []error
	for _, err := range r.reader.Locks(ctx, "") {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if locks++; locks == 10 {
			cancel()
		}
	}
	if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) || locks >= len(list) {
		t.Errorf("%d locks, %v", locks, errs)
	}
	if _, errs := all(ctx, r.reader, ""); len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		t.Errorf("%v", errs)
	}
	if _, err := r.reader.Look(ctx, "job1"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Breaking out of the loop ends it; Main wants no goroutine left.
func TestBreak(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write(hold, "a", "b", "c")
	for range 3 {
		n := 0
		for _, err := range r.reader.Locks(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			n++
			break
		}
		if n != 1 {
			t.Errorf("%d locks", n)
		}
	}
	for _, err := range r.reader.Locks(t.Context(), "[") {
		if err != nil {
			break
		}
	}
}

// Many locks, and as many hashes of others, which are to be left alone.
func TestManyLocks(t *testing.T) {
	t.Parallel()
	locks, others, semaphores := 10_000, 2_000, 500
	if full {
		locks, others = 100_000, 20_000
	}
	srv := redistest.Start(t)
	r := rigOf(t, srv.Client(t), "")
	list := make([]string, locks)
	for i := range list {
		list[i] = fmt.Sprint("job:", i)
	}
	r.write(hold, list...)
	r.write(func(ctx context.Context, pipe redis.Pipeliner, key string) {
		pipe.HSet(ctx, key+":other", "name", "Ann", "age", "7")
	}, list[:others]...)
	list = list[:semaphores]
	r.write(func(ctx context.Context, pipe redis.Pipeliner, key string) { permit(ctx, pipe, "s"+key) }, list...)

	var asked load
	r.rdb.(*redis.Client).AddHook(&asked)
	before := srv.Commands(t)
	began := time.Now()
	seen := map[string]int{}
	for l, err := range r.reader.Locks(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if l.Held != 1 {
			t.Errorf("%+v", l)
		}
		seen[l.Name]++
	}
	took := time.Since(began)
	used := srv.Commands(t).Since(before)

	if len(seen) != locks+semaphores {
		t.Errorf("%d locks, want %d", len(seen), locks+semaphores)
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s: %d times", name, n)
		}
	}
	// Others are served in between: Redis does little at a time, and nothing for as long again.
	if asked.most > 1000 || took < asked.busy*3/2 {
		t.Errorf("%d commands at a time, %v of %v", asked.most, asked.busy, took)
	}
	// Only what the package says, and the fields of no other hash.
	for name := range used {
		if !slices.Contains(strings.Fields("scan time hlen hscan hmget pttl get zcard zcount zrange zrangebyscore zmscore llen lrange ping hello client|setinfo client|maint_notifications"), name) {
			t.Errorf("%s was called %d times", name, used[name])
		}
	}
	if int(used["hscan"]) > locks*11/10 { // a bit more: SCAN may return a key more than once
		t.Errorf("fields of %d hashes were read, of %d locks", used["hscan"], locks)
	}
}

// load is a hook that sees what Redis is asked for: how many commands, or keys of a SCAN, at a time at most, and for how long in all.
type load struct {
	most int
	busy time.Duration
}

func (l *load) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *load) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "scan" {
			if i := slices.Index(args, any("count")); i < 0 {
				l.most = math.MaxInt
			} else {
				l.most = max(l.most, int(args[i+1].(int64)))
			}
		}
		return l.timed(func() error { return next(ctx, cmd) })
	}
}

func (l *load) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l.most = max(l.most, len(cmds))
		return l.timed(func() error { return next(ctx, cmds) })
	}
}

func (l *load) timed(ask func() error) error {
	began := time.Now()
	defer func() { l.busy += time.Since(began) }()
	return ask()
}

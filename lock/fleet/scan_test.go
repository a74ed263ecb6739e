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
		_, err := pipe.Exec(r.t.Context())
		must(r.t, err)
	}
}

// Names and patterns mean the same to Redis, which matches the locks, and here, where those of semaphores are matched.
func TestPatterns(t *testing.T) {
	t.Parallel()
	written := []string{
		"a", "b", "ab", "abc", "a*c", "a?c", "a[b]c", `a\c`, "a^c", "a-c", "a]c", "é", "aéc", "\xff", "a\xffc", "a/c", "a/b/c", "a\x00c", "a\nb", "\x1b[31m", " ", "{a}", "a{b}c", "orders:1",
		"orders:22", "aaaaaaaaaaaaaaaaaaaaaaaab", "*", "[", `\`, "[a-c]",
	}
	patterns := []string{
		"*", "", "a", "?", "??", "a?c", "a*c", "a*", "*c", `a\*c`, `a\?c`, `a\[b\]c`, `a\\c`, "[a-c]", "[c-a]", "[^a]", "[!a]", "a[b?*^]c", `a[\]]c`, "a[^b]c", "a[]c", "a/*", "a/?", "*/*", "**a**",
		"a*a*a*a*a*a*a*a*b", "orders:?", "orders:*[0-2]", "é", "a??c", "\xff", "a\x00c", `\*`, `\[`, `\\`, `\a`, "[[]", "nothing", `\[a-c\]`, "]", "*]*", "[-z]", "[a-]c]", "{a}", "*{*",
	}
	locks, semaphores := newRig(t), newRig(t)
	locks.write(hold, written...)
	semaphores.write(permit, written...)
	found := 0
	for _, pattern := range patterns {
		want, errs := all(t.Context(), locks.reader, pattern)
		got, errs2 := all(t.Context(), semaphores.reader, pattern)
		if len(errs) != len(errs2) || pattern != "a[]c" && len(errs) > 0 {
			t.Errorf("%q: %v and %v", pattern, errs, errs2)
		}
		if !slices.Equal(names(want), names(got)) {
			t.Errorf("%q matches the locks %q, and the semaphores %q", pattern, names(want), names(got))
		}
		found += len(want)
	}
	if found < 2*len(written) {
		t.Errorf("the patterns matched only %d names", found)
	}
	for _, name := range written {
		locks.wantLock(name, "mutex, held 1, waiting 0, available 0")
	}
	for _, pattern := range []string{"[", "a[b", `a\`, `[a\]`, "[^", "x[a-]"} {
		locks, errs := all(t.Context(), locks.reader, pattern)
		if len(locks) != 0 || len(errs) != 1 || !errors.Is(errs[0], fleet.ErrInvalid) || !strings.Contains(errs[0].Error(), fmt.Sprintf("%q", pattern)) {
			t.Errorf("%q: %v, %v", pattern, locks, errs)
		}
	}
}

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
		lock, semaphore := fmt.Sprint("lock", i), fmt.Sprint("semaphore", i)
		r.wantList("", lock, semaphore)
		r.wantList("s*", semaphore)
		r.wantLock(lock, "mutex, held 1, waiting 0, available 0")
	}
}

// On a Cluster locks and waits are read at all nodes: also in slots that have moved, and the client doesn't know yet, and besides a node that is down.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0, redistest.WithConfig("cluster-require-full-coverage", "no"))
	r := rigOf(t, redistest.Open(t, cluster.Universal()), "app:")
	c := r.client("c", lock.WithWaitGraph(0))
	ownerOf := func(key string) *redistest.Server { return cluster.Owner(t, cluster.Slot(t, "app:"+key)) }
	down := cluster.Nodes[2]
	if ownerOf("lockdog:waiting") == down {
		down = cluster.Nodes[1]
	}
	r.deadlock()
	want := []string{"a", "b", "c"}
	for i := range 30 {
		name := fmt.Sprintf("job:%02d", i)
		want = append(want, name)
		switch {
		case ownerOf(name) == down: // by hand: nobody could release them
			r.write(hold, name)
		case i%3 == 0:
			r.take(c.Mutex(name))
		case i%3 == 1:
			r.take(c.RWMutex(name).RLocker())
		default:
			must(t, c.Semaphore(name).EnsurePermits(t.Context(), 2))
			r.take(c.Semaphore(name))
		}
	}
	r.wantList("", want...)
	for _, l := range append(r.list("job*"), r.look("job:00"), r.look("job:01"), r.look("job:02")) {
		if got := r.summary(l); !strings.Contains(got, ", held 1, waiting 0, ") || l.Kind != fleet.Semaphore && (l.Holders[0].ClientID == "" || l.Holders[0].Token == 0) {
			t.Errorf("%s: %+v", got, l)
		}
	}
	r.wantPicture(deadlocked)

	// Slots that move, and have moved: of locks, of a client's waits, and of the clients.
	up := slices.DeleteFunc(slices.Clone(cluster.Nodes), func(n *redistest.Server) bool { return n == down })
	var finish []func()
	for _, key := range []string{"job:00", "b", "lockdog:waits:{" + newParty(2).random + "}", "lockdog:waiting"} {
		to := up[0]
		if ownerOf(key) == to {
			to = up[1]
		}
		m := cluster.Migrate(t, cluster.Slot(t, "app:"+key), to)
		m.MoveKeys(t, "app:"+key)
		finish = append(finish, func() { m.Finish(t) })
	}
	check := func() {
		t.Helper()
		if got := r.summary(r.look("job:00")); !strings.Contains(got, "held 1") {
			t.Errorf("%s", got)
		}
		r.wantPicture(deadlocked)
	}
	check()
	for _, f := range finish {
		f()
	}
	check()
	r.wantList("", want...)

	// What a node that is down has is missing, with one error, and all else is there.
	left := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return ownerOf(name) == down })
	missing := want[slices.IndexFunc(want, func(name string) bool { return ownerOf(name) == down })]
	waits := 0
	for n := 1; n <= 4; n++ {
		if ownerOf("lockdog:waits:{"+newParty(n).random+"}") != down {
			waits++
		}
	}
	down.Kill(t)
	locks, errs := all(t.Context(), r.reader, "")
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), down.Addr()) || !slices.Equal(names(locks), left) {
		t.Errorf("errors: %v, want one of %s; %q, want %q", errs, down.Addr(), names(locks), left)
	}
	if l, err := r.reader.Look(t.Context(), missing); err == nil || errors.Is(err, fleet.ErrNotALock) || !strings.Contains(err.Error(), missing) {
		t.Errorf("%+v, %v", l, err)
	}
	if g, err := r.reader.Graph(t.Context()); err == nil || !strings.Contains(err.Error(), down.Addr()) || len(g.Waits) != waits || len(g.Cycles) != 0 {
		t.Errorf("%v, want %d waits:\n%s", err, waits, picture(&g))
	}
}

// What a server refuses is never taken for a lock that is missing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	password := rand.Text()
	lacking := map[string][2]string{ // what a user may not call, and a lock that can't be read then
		"notime": {"-time", "other"}, "nofields": {"-hscan", "other"}, "nosizes": {"-hlen", "other"}, "nomarks": {"-get", "orders"}, "noleft": {"-pttl", "other"},
		"nowaiters": {"-zcard", "old"}, "nowriters": {"-zcount", "orders"}, "noqueue": {"-lrange", "only"}, "nodeadlines": {"-zmscore", "only"}, "noscan": {"-scan", ""},
		"reader": {"+ping", ""},
	}
	users := []redistest.Option{redistest.WithUser("part", "on", ">"+password, "~app:o*", "~*{app:o*", "+@read", "+time")}
	for user, lacks := range lacking {
		users = append(users, redistest.WithUser(user, "on", ">"+password, "~*", "+@read", "+ping", "+time", lacks[0]))
	}
	srv := redistest.Start(t, users...)
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
	admin.lookUntil("only", 1)
	admin.lookUntil("old", 1)
	every := []string{"old", "only", "orders", "other"}
	as("reader").wantList("", every...)
	as("reader").look("only")
	refused := func(r *rig, name string) {
		t.Helper()
		if l, err := r.reader.Look(t.Context(), name); err == nil || errors.Is(err, fleet.ErrNotALock) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}

	admin.write(hold, "foreign1", "foreign2")
	part := as("part")
	locks, errs := all(t.Context(), part.reader, "")
	if !slices.Equal(names(locks), every) || len(errs) != 1 || !strings.Contains(errs[0].Error(), "NOPERM") {
		t.Fatalf("%q, %v", names(locks), errs)
	}
	if text := errs[0].Error(); !strings.Contains(text, "2 keys") || !strings.Contains(text, `"foreign`) || strings.Contains(text, "app:") {
		t.Errorf("%s; it should name a lock, without the prefix", text)
	}
	part.wantList("o*", every...)
	refused(part, "foreign1")

	delete(lacking, "reader")
	for user, lacks := range lacking {
		r := as(user)
		locks, errs := all(t.Context(), r.reader, "")
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), "NOPERM") || slices.Contains(names(locks), lacks[1]) {
			t.Errorf("%s: %q, %v", user, names(locks), errs)
		}
		if lacks[1] != "" {
			refused(r, lacks[1])
		}
	}
}

// An answer that is cut off after SCAN is an error.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	space := redistest.Shared(t)
	rigOf(t, space.Client(t), space.Prefix()).write(hold, "a", "b")
	for _, command := range []string{"scan", "hlen", "hscan", "time"} {
		proxy := redistest.NewProxy(t, space.Addr())
		reader := rigOf(t, space.Client(t, func(o *redis.Options) { o.Addr, o.MaxRetries = proxy.Addr(), -1 }), space.Prefix()).reader
		proxy.SetRule(redistest.When(redistest.Up, redistest.Cut, redistest.Contains("\r\n"+command+"\r\n")))
		locks, errs := all(t.Context(), reader, "")
		if len(locks) != 0 || len(errs) != 1 || !strings.Contains(errs[0].Error(), proxy.Addr()) {
			t.Errorf("%s: %v, %v", command, locks, errs)
		}
		if l, err := reader.Look(t.Context(), "a"); (err == nil) != (command == "scan") || errors.Is(err, fleet.ErrNotALock) {
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
	for range 2 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := r.prefix + all[n%len(all)]
				pipe := r.rdb.TxPipeline()
				pipe.Del(ctx, key)
				if n%3 != 0 {
					now := time.Now().UnixMicro() // as the number of the owner, by which it is known whose token that is
					pipe.HSet(ctx, key, owner("c", int(now)), "1", "@lockdog", fmt.Sprint(now))
					pipe.PExpire(ctx, key, time.Hour)
				}
				_, _ = pipe.Exec(ctx)
			}
		})
	}
	for i := range 100 {
		locks := []fleet.Lock{r.look(all[0])}
		if i%10 == 0 {
			locks = append(locks, r.list("")...)
		}
		for _, l := range locks {
			if l.Held == 0 {
				continue
			}
			if h := l.Holders[0]; h.Owner != owner("c", int(h.Token)) || h.Remaining <= 0 || l.Kind != fleet.Mutex {
				t.Errorf("another's token, or no time: %+v", l)
			}
		}
	}
	cancel()
	wg.Wait()
}

// A ctx that ends, and a break, end the loop; Main wants no goroutine left.
func TestLoopThatEndsEarly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	list := make([]string, 300)
	for i := range list {
		list[i] = fmt.Sprint("job", i)
	}
	r.write(hold, list...)
	for l, err := range r.reader.Locks(t.Context(), "") {
		if err != nil || l.Held != 1 {
			t.Fatalf("%+v, %v", l, err)
		}
		break
	}
	for _, err := range r.reader.Locks(t.Context(), "[") {
		if err != nil {
			break
		}
	}

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
	r.write(func(ctx context.Context, pipe redis.Pipeliner, key string) { permit(ctx, pipe, "s"+key) }, list[:semaphores]...)

	var asked load
	r.rdb.(*redis.Client).AddHook(&asked)
	before := srv.Commands(t)
	began := time.Now()
	found := r.list("")
	took := time.Since(began)
	used := srv.Commands(t).Since(before)

	if different := slices.Compact(names(found)); len(found) != locks+semaphores || len(different) != len(found) {
		t.Errorf("%d locks, %d different ones, want %d", len(found), len(different), locks+semaphores)
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

package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// A call that shares no flight doesn't wait for those who do.
func TestFlightOfOneAlone(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	waiting := j.jammed(t.Context(), "job:0", "job:1")
	time.Sleep(3 * slowBatch) // later they ask for one more worker no more
	order := make(chan string, 10)
	j.proxy.SetRule(redistest.When(redistest.Up, redistest.Pass, func(c redistest.Chunk) bool {
		for _, name := range []string{"job:0", "job:fair"} {
			if bytes.Contains(c.Data, []byte(name)) {
				order <- name
			}
		}
		return false
	}))
	j.fly(-(maxInFlight - maxShared)) // as if so many were on their way
	l, err := j.c.FairMutex("job:fair").TryLock(t.Context())
	if first := <-order; first != "job:fair" {
		t.Errorf("%s was sent first", first)
	}
	j.proxy.SetRule(nil)
	for _, ch := range waiting { // by the same worker, as it is there
		j.release(<-ch)
	}
	j.release(outcome{l, err})
	j.fly(-maxShared)
}

// Calls that share a flight cost one command, and each has an outcome of its own.
func TestFlightHasOutcomesOfItsOwn(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	ctx := t.Context()
	j.rdb.Set(ctx, "job:string", "x", 0)
	j.rdb.HSet(ctx, "job:java", "thread", 2)
	free := make([]string, 5)
	for i := range free {
		free[i] = fmt.Sprint("job:", i)
	}
	names := append([]string{"job:string", "job:java"}, append(free, "job:0")...)
	all := j.jammed(ctx, names...)
	before := j.srv.Commands(t)["evalsha"]
	j.off()
	out := make([]outcome, len(all))
	for i, ch := range all {
		out[i] = <-ch
	}
	// The batch was not known yet: EVALSHA, then EVAL.
	if sent := j.srv.Commands(t)["evalsha"] - before; sent != 1 {
		t.Errorf("%d commands for %d calls, want 1", sent, len(all))
	}
	if err := out[0].err; !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a key that is no lock: %v", err)
	}
	var held *HeldError
	if err := out[1].err; !errors.As(err, &held) || held.Owner != "thread" || held.Name != "job:java" {
		t.Errorf("a lock that is held: %v", err)
	}
	if err := out[7].err; !errors.As(err, &held) || held.Owner != out[2].l.Owner() {
		t.Errorf("a lock that was taken in the same flight: %v", err)
	}
	for i := range free {
		o := out[2+i]
		if o.err != nil || o.l.Name() != free[i] {
			t.Fatalf("%s: %v", free[i], o.err)
		}
		if h, err := j.c.Mutex(free[i]).Inspect(ctx); err != nil || h.Owner != o.l.Owner() || h.Token != o.l.Token() {
			t.Errorf("%s: %+v, %v; want %s and token %d", free[i], h, err, o.l.Owner(), o.l.Token())
		}
		j.release(o)
		if !j.gone(free[i]) {
			t.Errorf("%s is held yet", free[i])
		}
	}
}

// Releases share flights as well, with each other and with acquires.
func TestFlightOfReleases(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	var leases []outcome
	for i := range 3 {
		l, err := j.c.Mutex(fmt.Sprint("job:", i)).TryLock(t.Context())
		leases = append(leases, outcome{l, err})
	}
	j.rdb.Del(t.Context(), "job:1")
	j.rdb.HSet(t.Context(), "job:1", "thread", 1)
	all := j.jammed(t.Context(), "job:new")
	released := make([]chan error, len(leases))
	for i, o := range leases {
		released[i] = make(chan error, 1)
		go func() { released[i] <- o.l.Release(context.Background()) }()
		j.eventually(func() bool { return j.pending() == 2+i })
	}
	j.off()
	j.release(<-all[0])
	for i, want := range []error{nil, ErrLost, nil} {
		if err := <-released[i]; !errors.Is(err, want) {
			t.Errorf("release %d: %v, want %v", i, err, want)
		}
	}
	if !j.gone("job:0") || j.gone("job:1") || !j.gone("job:2") {
		t.Error("the wrong locks are held")
	}
}

// The script of a flight is told once what its calls have in common: what they haven't stays each one's own, whatever their order.
func TestFlightOfUnlikeCalls(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	ctx := t.Context()
	held := []outcome{{}, {}}
	for i := range held {
		held[i].l, held[i].err = j.c.Mutex(fmt.Sprint("job:held-", i)).TryLock(ctx)
	}
	j.fly(maxInFlight)
	waiting := 0
	board := func(call func()) {
		waiting++
		go call()
		j.eventually(func() bool { return j.pending() == waiting })
	}
	names := []string{"job:0", "job:1", "job:2", "job:{held-0}", "job:3"}
	taken, released := make([]chan outcome, len(names)), make(chan error, len(held))
	for i, name := range names {
		taken[i] = make(chan outcome, 1)
		board(func() {
			l, err := j.c.Mutex(name, WithFixedLease(time.Duration(10+i/2)*time.Minute)).TryLock(ctx)
			taken[i] <- outcome{l, err}
		})
		if i < len(held) {
			board(func() { released <- held[i].l.Release(ctx) })
		}
	}
	before := j.srv.Commands(t)["evalsha"]
	j.off()
	for range held {
		if err := <-released; err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	for i, name := range names {
		o := <-taken[i]
		if o.err != nil {
			t.Fatalf("%s: %v", name, o.err)
		}
		full := time.Duration(10+i/2) * time.Minute
		if left := j.rdb.PTTL(ctx, name).Val(); left > full || left < full-30*time.Second {
			t.Errorf("%s is leased for %v, want %v", name, left, full)
		}
		if h, err := j.c.Mutex(name).Inspect(ctx); err != nil || h.Owner != o.l.Owner() || h.Token != o.l.Token() {
			t.Errorf("%s: %+v, %v; want %s and token %d", name, h, err, o.l.Owner(), o.l.Token())
		}
		defer j.release(o)
	}
	if sent := j.srv.Commands(t)["evalsha"] - before; sent != 1+int64(len(names)) {
		t.Errorf("%d commands, want one, and one for each Inspect", sent)
	}
	if !j.gone("job:held-0") || !j.gone("job:held-1") {
		t.Error("what was released is there")
	}
}

// Three flights are under way to all nodes together, but whoever is the first to want one to a node has it.
func TestFlightsToOtherNodes(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	tr := j.c.transport
	others := func(more int) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.sharedInFlight += more
	}
	others(maxShared)
	took := time.Hour
	for i := 0; i < 10 && took > slowBatch; i++ { // a busy machine may be as slow with one, not with all
		j.n.lately.Store(0) // so that it isn't sent by its caller
		start := time.Now()
		l, err := j.c.Mutex("job").TryLock(t.Context())
		took = min(took, time.Since(start))
		j.release(outcome{l, err})
	}
	if took > slowBatch {
		t.Errorf("it took %v: it waited for other nodes' flights", took)
	}

	j.fly(1)
	second := make(chan outcome, 1)
	waited := false
	for i := 0; i < 10 && !waited; i++ { // it waits for slowFlight only, in which a busy machine may not look
		go func() {
			l, err := j.c.Mutex("job").TryLock(t.Context())
			second <- outcome{l, err}
		}()
		j.eventually(func() bool { waited = waited || j.pending() == 1; return waited || len(second) == 1 })
		if !waited {
			j.release(<-second)
		}
	}
	if !waited {
		t.Fatal("the second flight to a node goes at once")
	}
	j.fly(-1)
	others(-maxShared)
	j.release(<-second) // when the first is slow, a second goes after all
}

// What an ACL forbids to one call is that one's error.
func TestFlightWithAForbiddenKey(t *testing.T) {
	t.Parallel()
	j := newJam(t, redistest.WithUser("app", "on", ">secret", "~job*", "~lockdog:fence:*", "&*", "+@all"))
	all := j.jammed(t.Context(), "job:1", "other", "job:2")
	j.off()
	j.release(<-all[0])
	if err := (<-all[1]).err; err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("a key that is forbidden: %v", err)
	}
	j.release(<-all[2])
}

// A flight whose answer, or which itself, is lost is as harmless as a call: each of its calls is tried again.
func TestFlightIsLost(t *testing.T) {
	t.Parallel()
	batch := func(c redistest.Chunk) bool { return bytes.Contains(c.Data, []byte(script.Batch.SHA)) }
	for what, rule := range map[string]redistest.Rule{
		"reply cut":       redistest.ReplyTo(redistest.Cut, batch, redistest.Nth(1)),
		"reply dropped":   redistest.ReplyTo(redistest.Drop, batch, redistest.Nth(1)),
		"request cut":     redistest.When(redistest.Up, redistest.Cut, batch, redistest.Nth(1)),
		"request dropped": redistest.When(redistest.Up, redistest.Drop, batch, redistest.Nth(1)),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			j := newJamWithin(t, 500*time.Millisecond)
			j.rdb.ScriptLoad(t.Context(), script.Batch.Source)
			names := []string{"job:1", "job:2", "job:3", "job:4"}
			all := j.jammed(t.Context(), names...)
			j.proxy.SetRule(rule)
			j.off()
			for i, ch := range all {
				o := <-ch
				if o.err != nil {
					t.Errorf("%s: %v", names[i], o.err)
					continue
				}
				if h := j.rdb.HGetAll(t.Context(), names[i]).Val(); h[o.l.Owner()] != "1" || len(h) != 2 {
					t.Errorf("%s: %v in Redis, want %s once", names[i], h, o.l.Owner())
				}
				j.release(o)
			}
			for _, name := range names {
				if !j.gone(name) {
					t.Errorf("%s is held yet", name)
				}
			}
		})
	}
}

// Who leaves before the flight was never there; who leaves meanwhile leaves nothing behind; the others don't notice.
func TestFlightAndThoseWhoLeave(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	j.rdb.ScriptLoad(t.Context(), script.Batch.Source)
	early, leaveEarly := context.WithCancel(t.Context())
	late, leaveLate := context.WithCancel(t.Context())
	defer leaveLate()
	leavers := j.jammed(early, "job:early")
	j.fly(-maxInFlight) // jammed twice
	rest := j.jammed(late, "job:late")
	j.fly(-maxInFlight)
	rest = append(rest, j.jammed(t.Context(), "job:stays", "job:stays-too")...)

	leaveEarly()
	if err := (<-leavers[0]).err; !errors.Is(err, context.Canceled) {
		t.Errorf("the first to leave: %v", err)
	}
	if n := j.pending(); n != 3 {
		t.Errorf("%d wait, want 3", n)
	}
	j.proxy.SetRule(redistest.ReplyTo(redistest.Hold, func(c redistest.Chunk) bool {
		if bytes.Contains(c.Data, []byte("job:early")) {
			t.Error("who has left was sent")
		}
		return bytes.Contains(c.Data, []byte(script.Batch.SHA))
	}, redistest.Nth(1)))
	j.off()
	j.proxy.AwaitHeld(t, 1)
	leaveLate()
	if err := (<-rest[0]).err; !errors.Is(err, context.Canceled) {
		t.Errorf("the second to leave: %v", err)
	}
	if j.gone("job:late") {
		t.Fatal("nothing is left to be cleared away")
	}
	j.proxy.SetRule(nil)
	j.proxy.Release()
	j.release(<-rest[1])
	j.release(<-rest[2])
	j.eventually(func() bool { return j.gone("job:late") })
}

// When Close is out of patience, those who wait for a flight fail, and those whom one carries; it hangs with neither.
func TestCloseDuringAFlight(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	all := j.jammed(t.Context(), "job:1", "job:2")
	j.proxy.SetRule(redistest.When(redistest.Up, redistest.Drop))
	j.off()
	j.eventually(func() bool { return j.pending() == 0 })
	all = append(all, j.jammed(t.Context(), "job:3")...)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // before Redis's answer is given up
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- j.c.Close(ctx) }()
	for i, ch := range all {
		select {
		case o := <-ch:
			if !errors.Is(o.err, ErrClosed) {
				t.Errorf("call %d: %v, want ErrClosed", i, o.err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a call hangs")
		}
	}
	select {
	case err := <-closed:
		if err != nil { // they held nothing yet
			t.Errorf("Close: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close hangs")
	}
}

// A flight that is slow, on a connection that has died in silence for instance, isn't waited for by those who came after it.
func TestFlightThatIsSlow(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	j.fly(maxShared) // they never land
	start := time.Now()
	l, err := j.c.Mutex("job").TryLock(t.Context())
	j.release(outcome{l, err})
	if took := time.Since(start); took < slowBatch {
		t.Errorf("it took %v: it didn't wait for the flights", took)
	}
	j.fly(-maxShared)
}

// A caller that sends its call itself doesn't look at its ctx meanwhile, but soon after.
func TestPilotHearsOfItsCtxSoon(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	j.c = openFor(t, j.srv.Client(t, func(o *redis.Options) {
		o.Addr, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = j.proxy.Addr(), time.Minute, time.Minute, true
	}))
	j.n = j.c.transport.nodeOf("job")
	j.eventually(func() bool { // on a busy machine it takes some calls until one is quick
		l, err := j.c.Mutex("job").TryLock(t.Context())
		j.release(outcome{l, err})
		return j.c.transport.maySendInline(t.Context(), j.n, time.Minute)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	j.proxy.SetRule(redistest.When(redistest.Up, redistest.Drop, func(redistest.Chunk) bool {
		time.AfterFunc(5*time.Millisecond, cancel) // when it is on its way
		return true
	}))
	done := make(chan outcome, 1)
	start := time.Now()
	go func() {
		l, err := j.c.Mutex("job").TryLock(ctx)
		done <- outcome{l, err}
	}()
	err := (<-done).err
	if took := time.Since(start); took > 10*time.Second { // go-redis would wait for a minute
		t.Errorf("it took %v", took)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if j.n.lately.Load() != 0 {
		t.Error("the next one would be its own pilot again")
	}
}

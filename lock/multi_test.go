package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// beginAny calls Lock on another goroutine.
func beginAny(ctx context.Context, l lock.Locker) <-chan taken {
	c := make(chan taken, 1)
	go func() {
		lease, err := l.Lock(ctx)
		c <- taken{lease, err}
	}()
	return c
}

// tryAny takes a lock that must be free.
func tryAny(t *testing.T, l lock.Locker) *lock.Lease {
	t.Helper()
	lease, err := l.TryLock(context.Background())
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return lease
}

// brief is the lease of locks in these tests.
const brief = 450 * time.Millisecond

// corner is a corner of the shared server, with clients that tell all they do.
type corner struct {
	t     *testing.T
	space redistest.Space
	rdb   *redis.Client
}

func newCorner(t *testing.T) *corner {
	sp := redistest.Shared(t)
	return &corner{t, sp, sp.Client(t)}
}

func (c *corner) client(opts ...lock.Option) (*lock.Client, *scope) {
	s := newScope(c.t)
	opts = append([]lock.Option{lock.WithKeyPrefix(c.space.Prefix()), lock.WithWatchdog(brief)}, opts...)
	return s.open(c.t, c.rdb, opts...), s
}

func (c *corner) key(name string) string { return c.space.Prefix() + name }

func (c *corner) exists(name string) bool {
	return c.rdb.Exists(context.Background(), c.key(name)).Val() == 1
}

// hold has somebody else hold a lock.
func (c *corner) hold(name string) {
	c.t.Helper()
	if err := c.rdb.HSet(context.Background(), c.key(name), somebodyElse, 1).Err(); err != nil {
		c.t.Fatal(err)
	}
}

func TestMultiTakesAllOrNone(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, as := c.client()
	b, _ := c.client()

	l := tryAny(t, a.Multi([]string{"y", "z", "x"}))
	if l.Name() != "x,y,z" {
		t.Errorf("it is called %q", l.Name())
	}
	tokens := l.Tokens()
	if len(tokens) != 3 || l.Token() != max(tokens["x"], tokens["y"], tokens["z"]) {
		t.Errorf("token %d, tokens %v", l.Token(), tokens)
	}
	owners := map[string]bool{}
	for _, name := range []string{"x", "y", "z"} {
		h, err := b.Mutex(name).Inspect(t.Context())
		if err != nil || !h.Held || h.Token != tokens[name] || h.Token == 0 || h.Remaining <= 0 {
			t.Errorf("%s: %+v, %v; its token is %d", name, h, err, tokens[name])
		}
		owners[h.Owner] = true
		var held *lock.HeldError
		if _, err := b.Mutex(name).TryLock(t.Context()); !errors.As(err, &held) || held.Name != name || held.Owner != h.Owner {
			t.Errorf("a Mutex beside it: %v", err)
		}
	}
	if len(owners) != 3 || !owners[l.Owner()] {
		t.Errorf("owners %v, the lease's is %q", owners, l.Owner())
	}
	for _, info := range a.Leases() {
		if info.Kind != "multi" || tokens[info.Name] != info.Token {
			t.Errorf("%+v", info)
		}
	}
	var held *lock.HeldError
	if _, err := b.Multi([]string{"w", "y"}).TryLock(t.Context()); !errors.As(err, &held) || held.Name != "y" || !owners[held.Owner] || held.Remaining <= 0 {
		t.Errorf("another Multi: %v", err)
	}
	if c.exists("w") {
		t.Error("it kept what it got")
	}
	free(t, l)
	mustMatch(t, l.Err(), lock.ErrReleased)
	mustMatch(t, context.Cause(l.Context()), lock.ErrReleased)
	mustMatch(t, l.Release(t.Context()), lock.ErrReleased)
	await(t, "Done", l.Done())
	next := tryAny(t, b.Multi([]string{"x", "z"}))
	for name, token := range next.Tokens() {
		if token <= tokens[name] {
			t.Errorf("%s: token %d after %d", name, token, tokens[name])
		}
	}
	free(t, next)
	for _, name := range []string{"x", "y", "z"} {
		if c.exists(name) {
			t.Errorf("%s is held yet", name)
		}
	}
	if got := as.sum(t, telemetry.MetricAcquisitions, "lockdog.outcome=acquired"); got != 3 {
		t.Errorf("%v acquisitions, want one for each name", got)
	}
}

// One script takes all, and one gives them back, whatever their number.
func TestMultiTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	sp := redistest.Shared(t)
	rdb, e := throughProxy(t, sp)
	s := newScope(t)
	c := s.open(t, rdb, lock.WithKeyPrefix(sp.Prefix()))
	free(t, tryAny(t, c.Mutex("warm"))) // the connection is there

	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("job:", i))
	}
	free(t, tryAny(t, c.Multi(names))) // Redis knows the scripts
	for range 2 {
		acquire, release := s.sent(t, telemetry.PurposeAcquire), s.sent(t, telemetry.PurposeRelease)
		l := tryAny(t, c.Multi(names))
		seen := map[int64]bool{}
		for _, token := range l.Tokens() {
			seen[token] = true
		}
		if len(seen) == 0 || len(l.Tokens()) != len(names) {
			t.Errorf("tokens %v", l.Tokens())
		}
		free(t, l)
		if a, r := s.sent(t, telemetry.PurposeAcquire)-acquire, s.sent(t, telemetry.PurposeRelease)-release; a != 1 || r != 1 {
			t.Errorf("%d calls to acquire, %d to release", a, r)
		}
	}
	if n := e.heard("acquire", sp.Prefix()+"job:"); n != 0 {
		t.Errorf("%d names were taken by themselves", n)
	}
	if left := sp.Keys(t); slices.ContainsFunc(left, func(k string) bool { return strings.Contains(k, "job:") }) {
		t.Errorf("left: %v", left)
	}
}

// Names that share a slot, and so a counter, have a token each.
func TestMultiTokensOfOneSlotDiffer(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, _ := c.client()
	m := a.Multi([]string{"{job}:a", "{job}:b", "{job}:c"})
	last := int64(0)
	for range 3 {
		l := tryAny(t, m)
		for _, name := range []string{"{job}:a", "{job}:b", "{job}:c"} {
			if token := l.Tokens()[name]; token <= last {
				t.Errorf("%s: token %d after %d", name, token, last)
			} else {
				last = token
			}
		}
		if l.Token() != last {
			t.Errorf("the token is %d, the largest of its names %d", l.Token(), last)
		}
		free(t, l)
	}
}

// Lock holds what comes before the name that it waits for, and renews it.
func TestMultiWaitsInOrder(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, as := c.client()
	b, _ := c.client()
	held := tryAny(t, b.Mutex("b"))
	next := beginAny(t.Context(), a.Multi([]string{"c", "b", "a"}))
	waiting(t, a, 1)
	eventually(t, patience, func() bool { return c.exists("a") })
	eventually(t, patience, func() bool { return as.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") >= 3 })
	if c.exists("c") {
		t.Error("it took what comes after the one that it waits for")
	}
	infos := a.Leases()
	slices.SortFunc(infos, func(a, b lock.LeaseInfo) int { return strings.Compare(a.Name, b.Name) })
	if len(infos) != 2 || infos[0].Name != "a" || infos[0].State != lock.StateHeld || infos[1].Name != "b" || infos[1].WaitsFor != held.Owner() {
		t.Errorf("%+v", infos)
	}
	free(t, held)
	l := granted(t, next)
	for _, name := range []string{"a", "b", "c"} {
		if !c.exists(name) {
			t.Errorf("%s isn't held", name)
		}
	}
	free(t, l)
}

// The lease is trusted for as long as all of its locks are.
func TestMultiDeadlineIsTheNearest(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, _ := c.client()
	b, _ := c.client()
	held := tryAny(t, b.Mutex("b"))
	start := time.Now()
	next := beginAny(t.Context(), a.Multi([]string{"a", "b"}, lock.WithFixedLease(far)))
	waiting(t, a, 1)
	had := time.Now()
	pass(t, brief/2)
	free(t, held)
	l := granted(t, next)
	if d := l.Deadline().Add(far/100 + 2*time.Millisecond); d.Before(start.Add(far)) || d.After(had.Add(far)) {
		t.Errorf("the lease counts from %v after the call, its first lock was had within %v", d.Sub(start.Add(far)), had.Sub(start))
	}
	free(t, l)
}

// The wait is bounded as a whole, and what was held meanwhile is given back.
func TestMultiGivesUp(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, _ := c.client()
	c.hold("b")
	names := []string{"a", "b"}
	gone := func() {
		t.Helper()
		eventually(t, patience, func() bool { return !c.exists("a") && len(a.Leases()) == 0 })
	}

	var held *lock.HeldError
	start := time.Now()
	if _, err := a.Multi(names, lock.WithWait(300*time.Millisecond)).Lock(t.Context()); !errors.As(err, &held) || held.Name != "b" || held.Owner != somebodyElse {
		t.Errorf("when WithWait is over: %v", err)
	}
	if took := time.Since(start); took < 300*time.Millisecond || took > 300*time.Millisecond+patience {
		t.Errorf("it took %v", took)
	}
	gone()
	if _, err := a.Multi(names, lock.WithWait(0)).Lock(t.Context()); !errors.As(err, &held) || held.Name != "b" {
		t.Errorf("with WithWait(0): %v", err)
	}
	gone()

	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	next := beginAny(ctx, a.Multi(names))
	eventually(t, patience, func() bool { return c.exists("a") })
	waiting(t, a, 1)
	cancel(why)
	mustMatch(t, await(t, "Lock", next).err, why, lock.ErrHeld)
	gone()

	next = beginAny(t.Context(), a.Multi(names))
	waiting(t, a, 1)
	closed := make(chan error, 1)
	go func() { closed <- a.Close(context.Background()) }()
	mustMatch(t, await(t, "Lock", next).err, lock.ErrClosed)
	if err := await(t, "Close", closed); err != nil {
		t.Errorf("Close: %v", err)
	}
	eventually(t, patience, func() bool { return !c.exists("a") })
	_, err := a.Multi(names).TryLock(t.Context())
	mustMatch(t, err, lock.ErrClosed)
}

// The loss of one is the loss of all: the others are renewed no more, and are given back by Release, or, without it, when
// their leases end.
func TestMultiLosesAll(t *testing.T) {
	t.Parallel()
	for _, release := range []bool{true, false} {
		t.Run(fmt.Sprint("released ", release), func(t *testing.T) {
			t.Parallel()
			c := newCorner(t)
			a, s := c.client()
			l := tryAny(t, a.Multi([]string{"a", "b", "c"}))
			work := l.Context()
			c.rdb.Del(t.Context(), c.key("b"))
			mustBeLost(t, l, lock.CauseMissing)
			if work.Err() == nil {
				t.Error("its Context lives")
			}
			var lost, of *lock.LostError
			if err := l.Err(); !errors.As(err, &lost) || !errors.As(lost.Unwrap(), &of) || of.Name != "b" || of.Cause != lock.CauseMissing {
				t.Errorf("the loss doesn't say whose: %v", err)
			}
			if release {
				mustMatch(t, l.Release(t.Context()), lock.ErrLost)
				mustMatch(t, l.Release(t.Context()), lock.ErrReleased)
			} else {
				eventually(t, patience, func() bool { return len(a.Leases()) == 0 })
			}
			// In Redis they end a little later than here.
			eventually(t, patience, func() bool { return !c.exists("a") && !c.exists("c") })
			if n := s.sum(t, telemetry.MetricLosses); n != 1 {
				t.Errorf("%v losses are counted, want 1", n)
			}
			if n := s.sum(t, telemetry.MetricCancellations, "lockdog.reason=context"); !release && n != 2 {
				t.Errorf("%v cancellations are counted, want those of the others", n)
			}
		})
	}
}

// A lock that is lost while Lock waits for another is taken again.
func TestMultiStartsAgain(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, s := c.client()
	c.hold("b")
	next := beginAny(t.Context(), a.Multi([]string{"a", "b"}))
	for range 2 {
		waiting(t, a, 1)
		eventually(t, patience, func() bool { return c.exists("a") })
		losses := s.sum(t, telemetry.MetricLosses)
		c.rdb.Del(t.Context(), c.key("a"))
		eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricLosses) > losses })
	}
	eventually(t, patience, func() bool { return c.exists("a") })
	if _, err := a.Mutex("b").ForceUnlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := granted(t, next)
	if l.Err() != nil || l.Context().Err() != nil || len(l.Tokens()) != 2 {
		t.Errorf("%v, %v", l.Err(), l.Tokens())
	}
	free(t, l)
}

// The limits on a hold count from when all are held, and not while one waits with some of them.
func TestMultiLimitsCountFromTheWhole(t *testing.T) {
	t.Parallel()
	for _, limit := range []struct {
		reason lock.Reason
		opt    lock.LockOption
	}{
		{lock.ReasonMaxHold, lock.WithMaxHold(brief / 2)},
		{lock.ReasonHeartbeat, lock.WithHeartbeat(brief / 2)},
	} {
		t.Run(string(limit.reason), func(t *testing.T) {
			t.Parallel()
			c := newCorner(t)
			a, s := c.client()
			b, _ := c.client()
			held := tryAny(t, b.Mutex("b"))
			next := beginAny(t.Context(), a.Multi([]string{"a", "b", "c"}, limit.opt))
			waiting(t, a, 1)
			pass(t, 2*brief)
			if n := s.sum(t, telemetry.MetricCancellations); n != 0 {
				t.Errorf("%v were canceled while it waited", n)
			}
			free(t, held)
			l, start := granted(t, next), time.Now()
			if limit.reason == lock.ReasonHeartbeat {
				for range 4 {
					pass(t, brief/8)
					l.Heartbeat()
				}
				start = time.Now()
			}
			_ = mustBeCanceled(t, l, limit.reason)
			if took := time.Since(start); took < brief/4 || took > brief/2+patience {
				t.Errorf("canceled %v after the grant, the limit is %v", took, brief/2)
			}
			reason := "lockdog.reason=" + string(limit.reason)
			eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricCancellations, reason) == 3 })
			free(t, l)
		})
	}
}

// Whoever holds a name by its ctx is recognized, whether by a Mutex or by a Multi.
func TestMultiReentry(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, s := c.client()
	b, _ := c.client()
	multi := func(names ...string) *lock.Multi { return a.Multi(names, lock.WithReentrancy()) }
	both := tryAny(t, a.Multi([]string{"a", "b"}))
	for _, l := range []lock.Locker{a.Mutex("a"), a.Mutex("b"), a.Multi([]string{"a", "b"}), a.Multi([]string{"b", "c"}), a.FairMutex("b")} {
		_, err := l.Lock(both.Context())
		mustMatch(t, err, lock.ErrDeadlock)
	}
	free(t, tryAny(t, b.Mutex("c")))
	mustMatch(t, func() error { _, err := b.Multi([]string{"a"}).TryLock(both.Context()); return err }(), lock.ErrHeld)

	lockIn := func(l lock.Locker, outer *lock.Lease) *lock.Lease {
		t.Helper()
		lease, err := l.Lock(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	sent := s.sent(t, telemetry.PurposeAcquire)
	same := lockIn(multi("a", "b"), both)
	one := lockIn(a.Mutex("b", lock.WithReentrancy()), same)
	if n := s.sent(t, telemetry.PurposeAcquire); n != sent {
		t.Errorf("joining took %d calls", n-sent)
	}
	more := lockIn(multi("a", "b", "c", "d"), one)
	if same.Token() != both.Token() || one.Token() != both.Tokens()["b"] || more.Tokens()["a"] != both.Tokens()["a"] {
		t.Errorf("tokens: %v, then %v, %d, %v", both.Tokens(), same.Tokens(), one.Token(), more.Tokens())
	}
	free(t, both)
	if !c.exists("a") || !c.exists("b") {
		t.Error("the first of several handles has freed the lock")
	}
	if same.Err() != nil || one.Err() != nil || more.Err() != nil {
		t.Errorf("%v, %v, %v", same.Err(), one.Err(), more.Err())
	}
	await(t, "the Context of what was taken in it", more.Context().Done())
	free(t, same)
	free(t, more)
	if c.exists("a") || c.exists("c") || !c.exists("b") {
		t.Error("the last handle frees a lock, and none before it")
	}
	free(t, one)
	if c.exists("b") {
		t.Error("b is held yet")
	}

	// What a Multi joined is given back as what it was taken as.
	fair := tryAny(t, a.FairMutex("a"))
	inner, err := multi("a", "b").Lock(context.WithoutCancel(fair.Context()))
	if err != nil {
		t.Fatal(err)
	}
	free(t, fair)
	next := beginAny(t.Context(), a.FairMutex("a"))
	waiting(t, a, 1)
	start := time.Now()
	free(t, inner)
	free(t, granted(t, next))
	if took := time.Since(start); took > brief/2 {
		t.Errorf("who waited for the FairMutex wasn't woken: %v", took)
	}

	// A Multi that joined a Mutex and lost another name leaves the Mutex alone.
	outer := tryAny(t, a.Mutex("a"))
	inner = lockIn(multi("a", "b"), outer)
	c.rdb.Del(t.Context(), c.key("b"))
	mustBeLost(t, inner, lock.CauseMissing)
	if pass(t, brief); outer.Err() != nil || outer.Context().Err() != nil {
		t.Errorf("the outer lease: %v, %v", outer.Err(), outer.Context().Err())
	}
	mustMatch(t, inner.Release(t.Context()), lock.ErrLost)
	free(t, outer)
}

// The lease follows its ctx, and WithLeaseContext instead, also as to whose names it has.
func TestMultiFollowsItsContext(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, _ := c.client()
	type key struct{}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 7))
	l, err := a.Multi([]string{"a", "b"}).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if l.Context().Value(key{}) != 7 {
		t.Error("its Context lacks the values of ctx")
	}
	cancel(why)
	if l.Context().Err() == nil {
		t.Error("its Context lives on")
	}
	mustMatch(t, mustBeCanceled(t, l, lock.ReasonContext), why)
	if l.Err() != nil || !c.exists("a") {
		t.Errorf("canceled is not ended: %v", l.Err())
	}
	free(t, l)

	outer := tryAny(t, a.Multi([]string{"a", "b"}))
	ctx, cancel = context.WithCancelCause(outer.Context())
	inner, err := a.Multi([]string{"c", "d"}, lock.WithLeaseContext(t.Context())).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel(why)
	if inner.Context().Err() != nil {
		t.Error("it follows the ctx of Lock")
	}
	for _, name := range []string{"a", "d"} {
		_, err = a.Mutex(name).Lock(inner.Context())
		mustMatch(t, err, lock.ErrDeadlock)
	}
	free(t, inner)
	free(t, outer)
}

// Close ends the Context, renews while the holder winds down, and waits for the release.
func TestMultiClose(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, _ := c.client()
	l := tryAny(t, a.Multi([]string{"a", "b"}))
	closed := make(chan error, 1)
	go func() { closed <- a.Close(context.Background()) }()
	mustMatch(t, mustBeCanceled(t, l, lock.ReasonClosed), lock.ErrClosed)
	pass(t, 2*brief)
	if l.Err() != nil || !c.exists("a") || !c.exists("b") {
		t.Errorf("it wasn't renewed while the client closes: %v", l.Err())
	}
	free(t, l)
	if err := await(t, "Close", closed); err != nil {
		t.Errorf("Close: %v", err)
	}

	a, _ = c.client()
	l = tryAny(t, a.Multi([]string{"a", "b"}))
	closeSoon(a)
	await(t, "Done", l.Done())
	mustMatch(t, l.Err(), lock.ErrClosed)
	mustMatch(t, l.Release(t.Context()), lock.ErrClosed)
}

func TestMultiInput(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, s := c.client()
	many := make([]string, 1025)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	var none *lock.Client
	for what, m := range map[string]*lock.Multi{
		"at least one":         a.Multi(nil),
		"at most 1024":         a.Multi(many),
		`"x" is given twice`:   a.Multi([]string{"x", "y", "x"}),
		"name is empty":        a.Multi([]string{"x", ""}),
		"no hash tag":          a.Multi([]string{"x", "a{b"}),
		"contradict":           a.Multi([]string{"x"}, lock.WithWatchdog(time.Second), lock.WithFixedLease(time.Second)),
		"the Client is nil":    none.Multi([]string{"x"}),
		"is made by a Client":  nil,
		"is made by a Client,": {},
	} {
		_, err := m.TryLock(t.Context())
		if mustMatch(t, err, lock.ErrInvalid); !strings.Contains(err.Error(), what) {
			t.Errorf("the error doesn't say %q: %v", what, err)
		}
	}
	if n := s.sent(t, telemetry.PurposeAcquire); n != 0 {
		t.Errorf("%d calls were made", n)
	}
	names := []string{"z", "a"}
	if l := tryAny(t, a.Multi(names)); l.Name() != "a,z" || names[0] != "z" {
		t.Errorf("%q; the caller's names are %v", l.Name(), names)
	}
	_, err := a.Multi([]string{"x", "y"}).Lock(func() context.Context { ctx, cancel := context.WithCancel(t.Context()); cancel(); return ctx }())
	mustMatch(t, err, context.Canceled)
}

func TestMultiDo(t *testing.T) {
	t.Parallel()
	c := newCorner(t)
	a, _ := c.client()
	why := errors.New("why")
	err := a.Multi([]string{"a", "b"}).Do(t.Context(), func(ctx context.Context, l *lock.Lease) error {
		if l.Name() != "a,b" || !c.exists("a") || !c.exists("b") {
			t.Error("it isn't held")
		}
		c.rdb.Del(ctx, c.key("a"))
		<-ctx.Done()
		return why
	})
	mustMatch(t, err, why, lock.ErrLost)
	if c.exists("b") {
		t.Error("b is held yet")
	}
}

// Multis of random names, in two clients, and Mutexes within Mutexes in that order, get on with each other: nobody waits in a
// circle, and no name is held twice.
func TestMultisDontDeadlock(t *testing.T) {
	t.Parallel()
	const workers, rounds = 6, 25
	c := newCorner(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var mu sync.Mutex
	holders := map[string]int{}
	work := func(names ...string) {
		for _, by := range []int{1, -1} {
			mu.Lock()
			for _, name := range names {
				if holders[name] += by; holders[name] > 1 {
					t.Errorf("%s is held twice", name)
				}
			}
			mu.Unlock()
		}
	}
	var all sync.WaitGroup
	for w := range workers {
		a, _ := c.client()
		all.Go(func() {
			for i := range rounds {
				names := []string{"a", "b", "c", "d"}
				names = append(names[:(w+i)%4], names[(w+i)%4+1:]...) // three of them
				var err error
				if (w+i)%3 > 0 {
					err = a.Multi(names).Do(ctx, func(context.Context, *lock.Lease) error { work(names...); return nil })
				} else {
					err = a.Mutex(names[0]).Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
						return a.Mutex(names[2]).Do(ctx, func(context.Context, *lock.Lease) error { work(names[0], names[2]); return nil })
					})
				}
				if err != nil {
					t.Errorf("worker %d, round %d: %v", w, i, err)
					return
				}
			}
		})
	}
	all.Wait()
}

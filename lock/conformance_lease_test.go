package lock_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

var leaseBehaviours = []behaviour{
	{name: "watched/kept", test: watchedIsKept, timed: true},
	{name: "watched/deadline moves", test: deadlineMoves},
	{name: "fixed/never renewed", test: fixedIsNeverRenewed, timed: true},
	{name: "lost/missing", test: lostMissing},
	{name: "lost/taken", test: lostTaken},
	{name: "lost/Release finds out", test: releaseFindsOut},
	{name: "WithMaxHold", test: maxHoldCuts, timed: true},
	{name: "WithHeartbeat", test: heartbeatKeeps, timed: true},
	{name: "WithHoldWarning", test: holdWarning, timed: true},
}

func watchedIsKept(t *testing.T, w *world) {
	l := try(t, w.lock(w.client(), "a"))
	always(t, 2*ttl, calmly(true, func() bool { return l.Err() == nil && l.Context().Err() == nil && w.left("a") > 0 }))
	free(t, l)
}

func deadlineMoves(t *testing.T, w *world) {
	l := try(t, w.lock(w.client(), "a"))
	for range 2 {
		before := l.Deadline()
		eventually(t, patience, func() bool { return l.Deadline().After(before) })
	}
	free(t, l)
}

func fixedIsNeverRenewed(t *testing.T, w *world) {
	c := w.client()
	l := try(t, w.lock(c, "a", lock.WithFixedLease(ttl)))
	deadline := l.Deadline()
	for _, info := range c.Leases() { // unless it has ended
		if !info.NextRenewal.IsZero() {
			t.Errorf("a renewal is planned, at %v", info.NextRenewal)
		}
	}
	mustBeLost(t, l, lock.CauseExpired)
	if l.Deadline() != deadline || time.Now().Before(deadline) {
		t.Errorf("the deadline moved by %v", l.Deadline().Sub(deadline))
	}
	free(t, granted(t, begin(context.Background(), w.lock(c, "a"))))
}

func lostMissing(t *testing.T, w *world) {
	m := w.lock(w.client(), "a")
	l := try(t, m)
	work := l.Context()
	w.lose("a")
	await(t, "Context", work.Done())
	mustBeLost(t, l, lock.CauseMissing)
	mustMatch(t, l.Release(t.Context()), lock.ErrLost)
	mustMatch(t, l.Release(t.Context()), lock.ErrReleased)
	next := w.takeFreed(m.TryLock)
	renewedPast(t, next, next.Deadline()) // the loss of one grant isn't that of the next
	free(t, next)
}

func lostTaken(t *testing.T, w *world) {
	c := w.client()
	take := func() *lock.Lease {
		l := try(t, w.lock(c, "a"))
		w.lose("a")
		w.hold("a", "thief", "1", far)
		await(t, "Done", l.Ended())
		return l
	}
	l := take()
	for range 3 { // a renewal may look between the two
		if isMissing(l) {
			w.lose("a")
			l = take()
		}
	}
	mustBeLost(t, l, lock.CauseTaken)
	if hash := w.holders("a"); hash[w.owner("thief")] != "1" {
		t.Errorf("the other owner's entry became %v", hash)
	}
	if ms := w.left("a"); ms < (far - time.Minute).Milliseconds() {
		t.Errorf("the other owner's lease became %d ms", ms)
	}
}

func releaseFindsOut(t *testing.T, w *world) {
	c := w.client()
	gone := try(t, w.lock(c, "a", lock.WithLease(far)))
	w.lose("a")
	mustMatch(t, gone.Release(t.Context()), lock.ErrLost)
	mustBeLostAs(t, gone, lock.CauseMissing)

	stolen := try(t, w.lock(c, "b", lock.WithLease(far)))
	w.lose("b")
	w.hold("b", "thief", "1", far)
	mustMatch(t, stolen.Release(t.Context()), lock.ErrLost)
	mustBeLostAs(t, stolen, lock.CauseTaken)
	if hash := w.holders("b"); hash[w.owner("thief")] != "1" {
		t.Errorf("the other owner's entry became %v", hash)
	}
}

// cutOff is a lease that lost the permission to work: it is renewed no more, and what is left of it is time to wind down.
func cutOff(t *testing.T, w *world, c *lock.Client, l *lock.Lease, reason lock.Reason) {
	t.Helper()
	_ = mustBeCanceled(t, l, reason)
	eventually(t, patience, func() bool { // a moment after the Context
		for _, info := range c.Leases() {
			if info.Owner == l.Owner() && !info.NextRenewal.IsZero() {
				return false
			}
		}
		return true
	})
	for _, info := range c.Leases() {
		if info.Owner == l.Owner() && (info.State != lock.StateCanceled || info.Reason != reason) {
			t.Errorf("%+v", info)
		}
	}
	mustBeLostAs(t, l, lock.CauseExpired)
	mustMatch(t, l.Release(t.Context()), lock.ErrLost)
	free(t, granted(t, begin(context.Background(), w.lock(c, l.Name()))))
}

func maxHoldCuts(t *testing.T, w *world) {
	c := w.client()
	start := time.Now()
	l := try(t, w.lock(c, "a", lock.WithMaxHold(2*ttl)))
	<-l.Context().Done() // our patience is shorter
	if held := time.Since(start); held < 2*ttl {
		t.Errorf("cut after %v, WithMaxHold says %v", held, 2*ttl)
	}
	cutOff(t, w, c, l, lock.ReasonMaxHold)
}

func heartbeatKeeps(t *testing.T, w *world) {
	c := w.client()
	l := try(t, w.lock(c, "a", lock.WithHeartbeat(ttl)))
	always(t, 2*ttl, func() bool {
		l.Heartbeat()
		return l.Context().Err() == nil
	})
	cutOff(t, w, c, l, lock.ReasonHeartbeat)
}

// holdWarning checks that WithHoldWarning logs once per lease, with the lock, the owner, the token and the trace.
func holdWarning(t *testing.T, w *world) {
	s := newScope(t)
	ctx, span := s.tracer.Tracer("the program").Start(t.Context(), "request")
	defer span.End()
	c := w.client(lock.WithTracerProvider(s.tracer), lock.WithLogger(s.log), lock.WithHoldWarning(300*time.Millisecond))
	l, err := w.lock(c, "a", lock.WithHeartbeat(ttl)).Lock(ctx)
	must(t, "Lock", err)
	warnings := func() []map[string]any { return s.records(t, telemetry.LogHeld) }
	eventually(t, patience, func() bool { return len(warnings()) > 0 })
	always(t, 2*ttl, func() bool {
		l.Heartbeat()
		return len(warnings()) == 1
	})
	free(t, l)
	r := warnings()[0]
	token, _ := r["token"].(float64)
	trace := span.SpanContext().TraceID().String()
	if strconv.Quote(r["name"].(string)) != w.title("a") || r["owner"] != l.Owner() || int64(token) != l.Token() || r["trace_id"] != trace {
		t.Errorf("the warning says %v, want name %s, owner %s, token %d and trace_id %s", r, w.title("a"), l.Owner(), l.Token(), trace)
	}
}

package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// patience is how long a test waits for what must happen soon. Nothing is measured by it.
const patience = 15 * time.Second

// stretched returns d in a bubble and 10 * d elsewhere, because a busy machine may hardly run this process.
func stretched(d time.Duration) time.Duration {
	if time.Now().UTC().Year() == 2000 { // when bubbles begin
		return d
	}
	return 10 * d
}

// eventually fails the test unless cond becomes true in time.
func eventually(t *testing.T, within time.Duration, cond func() bool) {
	t.Helper()
	deadline := time.After(stretched(within))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			if !cond() { // what stood still meanwhile may have been the process
				t.Fatalf("not so within %v", stretched(within))
			}
			return
		}
	}
}

// always fails the test if cond becomes false before d has passed.
func always(t *testing.T, d time.Duration, cond func() bool) {
	t.Helper()
	end := time.After(d)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for cond() {
		select {
		case <-tick.C:
		case <-end:
			return
		}
	}
	t.Fatalf("not so any more, before %v had passed", d)
}

// await waits for the end of what a channel stands for.
func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(stretched(patience)):
		t.Fatalf("%s: nothing after %v", what, stretched(patience))
	}
	return v
}

// taken is what a call of Lock gave.
type taken struct {
	*lock.Lease
	err error
}

// begin calls Lock on another goroutine.
func begin(ctx context.Context, m lock.Locker) <-chan taken {
	c := make(chan taken, 1)
	go func() {
		l, err := m.Lock(ctx)
		c <- taken{l, err}
	}()
	return c
}

// granted waits for a lock that must come.
func granted(t *testing.T, c <-chan taken) *lock.Lease {
	t.Helper()
	got := await(t, "Lock", c)
	if got.err != nil {
		t.Fatalf("Lock: %v", got.err)
	}
	return got.Lease
}

// try takes a lock that must be free.
func try(t *testing.T, m lock.Locker) *lock.Lease {
	t.Helper()
	l, err := answered(context.Background(), m)
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return l
}

// answered repeats TryLock if nodes of a Quorum didn't answer in their time, a tenth of the lease: a busy machine may
// be slower.
func answered(ctx context.Context, m lock.Locker) (l *lock.Lease, err error) {
	for range 4 {
		if l, err = m.TryLock(ctx); err == nil || !strings.Contains(err.Error(), "no answer in the time that a node has") {
			break
		}
	}
	return l, err
}

// renewedPast waits until a renewal has brought the end of the lease past a time, or the lease has ended.
func renewedPast(t *testing.T, l *lock.Lease, end time.Time) {
	t.Helper()
	eventually(t, patience, func() bool { return l.Err() != nil || l.Deadline().After(end) })
}

// outwaited calls wait with d, and then with longer and longer times, until its error matches ErrHeld: a wait that ends
// before Redis has answered returns another error.
func outwaited(d time.Duration, wait func(d time.Duration) error) error {
	for {
		err := wait(d)
		if d *= 4; errors.Is(err, lock.ErrHeld) || d > patience {
			return err
		}
	}
}

// noWork is what Do runs where nobody gets as far.
func noWork(context.Context, *lock.Lease) error { return nil }

// cycles takes the lock and gives it back, so many times.
func cycles(t *testing.T, m lock.Locker, turns int) {
	for range turns {
		l, err := m.Lock(t.Context())
		if err != nil {
			t.Errorf("Lock: %v", err)
			return
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
}

// free releases a lease that must be live.
func free(t *testing.T, l *lock.Lease) {
	t.Helper()
	if err := l.Release(context.Background()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// waiting waits until n calls of Lock stand in a client's lines.
func waiting(t *testing.T, c *lock.Client, n int) {
	t.Helper()
	eventually(t, patience, func() bool {
		have := 0
		for _, l := range c.Leases() {
			if l.State == lock.StateWaiting {
				have++
			}
		}
		return have == n
	})
}

// asleep waits until n calls of Lock stand in a client's lines and send nothing more by themselves, so that a test can
// count what is sent afterwards.
func asleep(t *testing.T, c *lock.Client, n int) {
	t.Helper()
	eventually(t, patience, func() bool { return lock.Asleep(c, n) })
}

// mustMatch fails the test unless err matches all targets.
func mustMatch(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("the error is %v; it should match %q", err, target)
		}
	}
}

// mustBeLost waits for a lease's end, which must be a loss with this cause, and that of its Context.
func mustBeLost(t *testing.T, l *lock.Lease, cause lock.Cause) {
	t.Helper()
	mustBeLostAs(t, l, cause)
	if got := context.Cause(l.Context()); !errors.Is(got, lock.ErrLost) {
		t.Fatalf("the cause of the Context is %v; it should match ErrLost", got)
	}
}

// mustBeLostAs is mustBeLost for a lease whose Context had ended before, for another cause.
func mustBeLostAs(t *testing.T, l *lock.Lease, cause lock.Cause) {
	t.Helper()
	await(t, "Done", l.Ended())
	var lost *lock.LostError
	if !errors.As(l.Err(), &lost) || lost.Cause != cause || lost.Name != l.Name() {
		t.Fatalf("the lease ended with %v; it should be lost as %q", l.Err(), cause)
	}
}

// isToldOfForce takes a lock away by force and reports whether its holder was told. A client that hardly runs may take its connection for dead,
// ask for its leases, and find the lock missing before it has read the message: then the lock is to be taken and forced again.
func isToldOfForce(t *testing.T, l *lock.Lease, operator *lock.Mutex) bool {
	t.Helper()
	if was, err := operator.ForceUnlock(t.Context()); !was || err != nil {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	await(t, "Done", l.Ended())
	if isMissing(l) {
		return false
	}
	mustBeLost(t, l, lock.CauseForced)
	return true
}

func isMissing(l *lock.Lease) bool {
	var lost *lock.LostError
	return errors.As(l.Err(), &lost) && lost.Cause == lock.CauseMissing
}

// mustBeCanceled waits for the end of a lease's Context, which must be a cancellation for this reason.
func mustBeCanceled(t *testing.T, l *lock.Lease, reason lock.Reason) *lock.CanceledError {
	t.Helper()
	await(t, "Context", l.Context().Done())
	var canceled *lock.CanceledError
	if !errors.As(context.Cause(l.Context()), &canceled) || canceled.Reason != reason || canceled.Name != l.Name() {
		t.Fatalf("the Context ended with %v; it should be canceled for %q", context.Cause(l.Context()), reason)
	}
	return canceled
}

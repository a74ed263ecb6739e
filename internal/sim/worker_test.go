package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// A worker takes locks and gives them back.
type worker struct {
	w   *world
	p   *proc
	id  string
	rng *rand.Rand
}

func (k *worker) run() {
	got := false
	for !isClosed(k.w.done) {
		got = k.once() && isClosed(k.w.calm) || got
		time.Sleep(time.Duration(k.rng.IntN(400)) * time.Millisecond)
	}
	if !got {
		k.w.violation("worker %s got no lock in %v without faults", k.id, calm)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// once tries to hold a lock once, and reports whether it did.
func (k *worker) once() bool {
	l := k.w.locks[k.rng.IntN(len(k.w.locks))]
	wait := time.Duration(1+k.rng.IntN(100)) * 100 * time.Millisecond
	if k.rng.IntN(5) == 0 {
		wait /= 100
	}
	ctx, leave := context.Background(), func() {}
	if k.rng.IntN(3) == 0 { // the lease follows it
		ctx, leave = context.WithTimeout(ctx, wait)
	}
	defer leave()
	locker, shared := l.locker(k.p.client.Load(), k.rng, lock.WithWait(wait))
	var lease *lock.Lease
	var err error
	if k.rng.IntN(6) == 0 {
		lease, err = locker.TryLock(ctx)
	} else {
		l.waits(k.id, true)
		lease, err = locker.Lock(ctx)
		l.waits(k.id, false)
	}
	if err != nil {
		k.mayFail(l, err)
		return false
	}
	l.granted(lease, k.id, shared)
	k.w.note("%s has %s, token %d", k.id, l.name, lease.Token())
	struck := false
	select {
	case k.w.granted <- k.p:
		struck = true
	default:
	}
	k.hold(l, lease, struck)
	return true
}

// mayFail checks an error.
func (k *worker) mayFail(l *watched, err error) {
	for _, known := range []error{lock.ErrHeld, lock.ErrUnavailable, lock.ErrClosed, context.DeadlineExceeded, lock.ErrInvalid} {
		if errors.Is(err, known) {
			return
		}
	}
	k.w.violation("%s: %s failed with %v", l.name, k.id, err)
}

// mayEnd checks why a lease has ended before its release, if it has: only a fault of Redis or of a client's network to
// Redis makes a lease be lost.
func (k *worker) mayEnd(l *watched, lease *lock.Lease) {
	k.w.mu.Lock()
	blameless := len(k.w.since(time.Now().Add(-2*k.w.term))) == 0
	k.w.mu.Unlock()
	if err := lease.Err(); blameless && errors.Is(err, lock.ErrLost) {
		k.w.violation("%s: %s has lost it, without a fault: %v", l.name, k.id, err)
	}
}

// hold keeps a lease for a while, one that a fault is to strike mostly for long, and releases it.
func (k *worker) hold(l *watched, lease *lock.Lease, struck bool) {
	length := time.Duration(k.rng.IntN(30)) * 10 * time.Millisecond // sometimes none
	if struck || k.rng.IntN(4) == 0 && !isClosed(k.w.calm) {        // long enough for renewals
		length *= 15
	}
	if length > 0 {
		select {
		case <-time.After(length):
		case <-lease.Context().Done():
		}
	}
	k.mayEnd(l, lease)
	l.over(lease)
	err := lease.Release(context.Background())
	k.w.note("%s releases %s: %v", k.id, l.name, err)
	if err != nil {
		go func() { // what is left of it in Redis
			time.Sleep(2 * k.w.term)
			l.gone(lease)
		}()
		return
	}
	l.gone(lease)
}

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock"
)

const (
	work = 20 * time.Millisecond // average time under a lock that many want
	rest = time.Second           // average time between two uses of a lock
)

// user uses locks. Numbers of goroutines and of locks decide which alerts a fault raises: see the faults of the soak
// test.
type user struct {
	id     string
	lease  time.Duration
	locks  *lock.Client
	quorum *lock.Quorum
	wg     sync.WaitGroup
}

// run returns when ctx has ended and everything is released.
func (u *user) run(ctx context.Context) {
	// Longer than a lease: a waiter outlasts the lease of a holder that vanished.
	patient := lock.WithWait(2 * u.lease)
	accounts := u.locks.RWMutex("account:1", patient)
	seats := u.locks.Semaphore("seat:1", patient)

	// Short work under locks that all processes want. Two goroutines for each, so that in an outage a process holds at
	// most two leases of each name.
	for range 2 {
		u.work(ctx, u.locks.Mutex("order:1", patient))
		u.work(ctx, u.locks.Mutex("invoice:1", patient, lock.WithFixedLease(u.lease)))
		u.work(ctx, u.locks.FairMutex("ticket:1", patient))
		u.work(ctx, accounts.RLocker())
		u.work(ctx, u.quorum.Mutex("vote:1", patient))
		u.repeat(ctx, func() error {
			if err := seats.EnsurePermits(ctx, 2); err != nil { // they are gone after a FLUSHALL
				return err
			}
			return seats.Do(ctx, brief)
		})
		u.repeat(ctx, func() error { return u.slot(ctx, u.locks.UnleasedSemaphore("slot:1", patient)) })
		u.repeat(ctx, func() error { return try(ctx, u.locks.Mutex("cron:1")) })
	}
	u.work(ctx, accounts)
	u.work(ctx, u.locks.Multi([]string{"pair:1", "pair:2"}, patient))
	u.work(ctx, u.locks.Multi([]string{"pair:2", "pair:3"}, patient))
	u.repeat(ctx, func() error { return u.gate(ctx, u.locks.Latch("gate:1", patient)) })

	// Locks that are held for long enough to be renewed: the reports, which the processes hold in turn, and shards and
	// a ballot, which only this process wants.
	for i := range 2 {
		u.hold(ctx, u.locks.Mutex(fmt.Sprintf("report:%d", i)), 5*u.lease/6)
	}
	for i := range 4 {
		u.hold(ctx, u.locks.Mutex(fmt.Sprintf("shard:%s-%d", u.id, i)), 3*u.lease)
	}
	u.hold(ctx, u.quorum.Mutex("ballot:"+u.id), 3*u.lease)
	u.wg.Wait()
}

func (u *user) work(ctx context.Context, l lock.Locker) {
	u.repeat(ctx, func() error { return l.Do(ctx, brief) })
}

func (u *user) hold(ctx context.Context, l lock.Locker, long time.Duration) {
	u.repeat(ctx, func() error {
		return l.Do(ctx, func(ctx context.Context, _ *lock.Lease) error { return sleep(ctx, long) })
	})
}

// try works under the lock, unless another holds it.
func try(ctx context.Context, l lock.Locker) error {
	lease, err := l.TryLock(ctx)
	if err != nil {
		return err
	}
	_ = brief(lease.Context(), lease)
	return lease.Release(ctx)
}

// slot works with a permit. The semaphore has spare permits, because a process that dies doesn't return its own.
func (u *user) slot(ctx context.Context, s *lock.UnleasedSemaphore) error {
	if _, err := s.TrySetPermits(ctx, 6); err != nil {
		return err
	}
	if err := s.Acquire(ctx, 1); err != nil {
		return err
	}
	_ = sleep(ctx, work)
	return s.Release(context.WithoutCancel(ctx), 1)
}

// gate closes a latch, works, and opens it again. If another has closed it, gate waits for it to open. If that wait
// fails, perhaps because the other died, gate opens the latch.
func (u *user) gate(ctx context.Context, l *lock.Latch) error {
	closed, err := l.TrySetCount(ctx, 1)
	if err != nil {
		return err
	}
	if closed {
		_ = sleep(ctx, work)
	} else if l.Wait(ctx) == nil {
		return nil
	}
	return l.CountDown(context.WithoutCancel(ctx))
}

// repeat calls the function use again and again until ctx ends. The errors are in the metrics and in lockdog's log.
func (u *user) repeat(ctx context.Context, use func() error) {
	u.wg.Go(func() {
		for ctx.Err() == nil {
			_ = use()
			_ = sleep(ctx, time.Duration(float64(rest)*(0.5+rand.Float64())))
		}
	})
}

func brief(ctx context.Context, _ *lock.Lease) error {
	return sleep(ctx, time.Duration(float64(work)*(0.5+rand.Float64())))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

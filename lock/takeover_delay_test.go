package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

const delayedLease, takeoverDelay = 30 * time.Second, 10 * time.Second

// delayedKinds are the kinds of lock that WithTakeoverDelay is for, of three clients of three servers.
var delayedKinds = map[string]func(cs []*lock.Client, opts ...lock.LockOption) lock.Locker{
	"Mutex":     func(cs []*lock.Client, opts ...lock.LockOption) lock.Locker { return cs[0].Mutex("job", opts...) },
	"FairMutex": func(cs []*lock.Client, opts ...lock.LockOption) lock.Locker { return cs[0].FairMutex("job", opts...) },
	"writer":    func(cs []*lock.Client, opts ...lock.LockOption) lock.Locker { return cs[0].RWMutex("job", opts...) },
	"reader": func(cs []*lock.Client, opts ...lock.LockOption) lock.Locker {
		if len(opts) == 0 { // the next: two readers don't exclude each other
			return cs[0].RWMutex("job")
		}
		return cs[0].RWMutex("job", opts...).RLocker()
	},
	"Semaphore": func(cs []*lock.Client, opts ...lock.LockOption) lock.Locker {
		s := cs[0].Semaphore("job", opts...)
		_ = s.EnsurePermits(context.Background(), 1) // without it no permit is granted
		return s
	},
	"Multi": func(cs []*lock.Client, opts ...lock.LockOption) lock.Locker {
		return cs[0].Multi([]string{"job", "job:2"}, opts...)
	},
	"Quorum": func(cs []*lock.Client, opts ...lock.LockOption) lock.Locker {
		q, err := lock.NewQuorum(cs...)
		if err != nil {
			panic(err)
		}
		return q.Mutex("job", opts...)
	},
}

// delayed are two locks of one name: the holder's has a takeover delay, and can be cut off from the servers.
type delayed struct {
	cut          atomic.Bool
	holder, next lock.Locker
}

func newDelayed(t *testing.T, kind string) *delayed {
	t.Helper()
	d := &delayed{}
	var mine, theirs []*lock.Client
	for range 3 {
		srv := redistest.StartFake(t)
		mine = append(mine, openTapped(t, srv, cutWhile(&d.cut)))
		theirs = append(theirs, open(t, srv.Client(t)))
	}
	d.holder = delayedKinds[kind](mine, lock.WithWatchdog(delayedLease), lock.WithTakeoverDelay(takeoverDelay))
	d.next = delayedKinds[kind](theirs)
	return d
}

// lose cuts the holder off until its lease is lost. It returns when that ran out in Redis.
func (d *delayed) lose(t *testing.T, l *lock.Lease) time.Time {
	t.Helper()
	time.Sleep(25 * time.Second) // it has been renewed
	d.cut.Store(true)
	<-l.Context().Done()
	mustMatch(t, l.Err(), lock.ErrLost)
	d.cut.Store(false)
	return l.Deadline().Add(delayedLease/100 + 2*time.Millisecond)
}

// A lease that ran out without a release leaves the lock taken for the takeover delay, though the holder could release it. No other gets it sooner, and
// who waits gets it then.
func TestTakeoverDelay(t *testing.T) {
	t.Parallel()
	for kind := range delayedKinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDelayed(t, kind)
				l := try(t, d.holder)
				waiter := begin(t.Context(), d.next)
				over := d.lose(t, l)
				got := <-waiter
				if got.err != nil {
					t.Fatal(got.err)
				}
				if late := time.Since(over.Add(takeoverDelay)); late < 0 || late > time.Second {
					t.Errorf("granted %v after the lease and the delay", late)
				}
				free(t, got.Lease)
			})
		})
	}
}

// After a release there is no delay, also if the lease was lost before.
func TestTakeoverDelay_Release(t *testing.T) {
	t.Parallel()
	for kind := range delayedKinds {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, " lost ", lost), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDelayed(t, kind)
					l := try(t, d.holder)
					waiter := begin(t.Context(), d.next)
					if lost {
						d.lose(t, l)
						mustMatch(t, l.Release(t.Context()), lock.ErrLost)
					} else {
						time.Sleep(time.Second)
						free(t, l)
					}
					released := time.Now()
					got := <-waiter
					if got.err != nil {
						t.Fatal(got.err)
					}
					if took := time.Since(released); took > time.Second {
						t.Errorf("granted %v after the release", took)
					}
					free(t, got.Lease)
				})
			})
		}
	}
}

// The delay is there from the first moment, however the lock was got: free, from another process, from this one. It is in what HeldError and Inspect say.
func TestTakeoverDelay_Remaining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		opts := []lock.LockOption{lock.WithWatchdog(delayedLease), lock.WithTakeoverDelay(takeoverDelay)}
		c, other := open(t, srv.Client(t)), open(t, srv.Client(t))
		m := c.Mutex("job", opts...)
		remaining := func(how string) {
			t.Helper()
			h, err := other.Mutex("job").Inspect(t.Context())
			must(t, "Inspect", err)
			_, err = other.Mutex("job").TryLock(t.Context())
			var held *lock.HeldError
			if !errors.As(err, &held) || h.Remaining != delayedLease+takeoverDelay || held.Remaining != h.Remaining {
				t.Errorf("%s: %v remaining, %v", how, h.Remaining, err)
			}
		}
		l := try(t, m)
		remaining("free")
		for how, from := range map[string]lock.Locker{"from another process": other.Mutex("job"), "from this process": m} {
			free(t, l)
			l = try(t, from)
			waiter := begin(t.Context(), m)
			time.Sleep(time.Second)
			free(t, l)
			l = granted(t, waiter)
			remaining(how)
			if left := time.Until(l.Deadline()); left > delayedLease {
				t.Errorf("%s: it is trusted for %v", how, left)
			}
		}
		time.Sleep(delayedLease / 3)
		synctest.Wait()
		remaining("renewed")
		free(t, l)
	})
}

// What is wrong with a delay is said by the first use.
func TestTakeoverDelay_Invalid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, redistest.StartFake(t).Client(t), lock.WithTakeoverDelay(time.Second)) // as a default it is nothing to what has no lease
		for _, d := range []time.Duration{-1, 24*time.Hour + 1} {
			_, err := c.Mutex("job", lock.WithTakeoverDelay(d)).TryLock(t.Context())
			mustMatch(t, err, lock.ErrInvalid)
		}
		mustMatch(t, c.UnleasedSemaphore("s", lock.WithTakeoverDelay(time.Second)).TryAcquire(t.Context(), 1), lock.ErrInvalid)
		mustMatch(t, c.Latch("l", lock.WithTakeoverDelay(time.Second)).Wait(t.Context()), lock.ErrInvalid)
		must(t, "Wait", c.Latch("l").Wait(t.Context()))
		q, err := lock.NewQuorum(c, open(t, redistest.StartFake(t).Client(t)), open(t, redistest.StartFake(t).Client(t)))
		must(t, "NewQuorum", err)
		_, err = q.Mutex("job").TryLock(t.Context())
		mustMatch(t, err, lock.ErrInvalid)
	})
}

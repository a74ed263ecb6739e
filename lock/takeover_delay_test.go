package lock_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

const delayedLease, takeoverDelay = 30 * time.Second, 10 * time.Second

// delayed are two locks of one name: the holder's has a takeover delay, and can be cut off from the servers.
type delayed struct {
	cut          atomic.Bool
	holder, next lock.Locker
}

func newDelayed(t *testing.T, k kindOfLock) *delayed {
	t.Helper()
	d := &delayed{}
	var mine, theirs []*lock.Client
	for range 3 { // of which all kinds but a Quorum take one
		srv := redistest.StartFake(t)
		mine = append(mine, openTapped(t, srv, cutWhile(&d.cut)))
		theirs = append(theirs, open(t, srv.Client(t)))
	}
	opts := []lock.LockOption{lock.WithLease(delayedLease), lock.WithTakeoverDelay(takeoverDelay)}
	if k.quorum {
		ours, err := lock.NewQuorum(mine...)
		must(t, "NewQuorum", err)
		other, err := lock.NewQuorum(theirs...)
		must(t, "NewQuorum", err)
		d.holder, d.next = ours.Mutex("job", opts...), other.Mutex("job")
		return d
	}
	d.holder, d.next = k.make(mine[0], "job", opts...), k.against(theirs[0], "job")
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

// After a lease that ran out without a release, the lock stays taken for the takeover delay. Nobody gets it sooner, and
// a waiter gets it then. After a release there is no delay, also if the lease was lost before.
func TestTakeoverDelay(t *testing.T) {
	t.Parallel()
	for _, k := range append([]kindOfLock{quorums, several}, allKinds...) {
		for _, end := range []string{"lost", "released", "lost and released"} {
			t.Run(k.name+" "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDelayed(t, k)
					l := try(t, d.holder)
					waiter := begin(t.Context(), d.next)
					var due time.Time
					switch end {
					case "lost":
						due = d.lose(t, l).Add(takeoverDelay)
					case "released":
						time.Sleep(time.Second)
						free(t, l)
						due = time.Now()
					default:
						d.lose(t, l)
						mustMatch(t, l.Release(t.Context()), lock.ErrLost)
						due = time.Now()
					}
					got := <-waiter
					must(t, "Lock", got.err)
					if late := time.Since(due); late < 0 || late > time.Second {
						t.Errorf("granted %v after it was due", late)
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
		opts := []lock.LockOption{lock.WithLease(delayedLease), lock.WithTakeoverDelay(takeoverDelay)}
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

package doctor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock"
)

const (
	probeLease = 5 * time.Second
	renewLease = 3 * time.Second // of locks that are held until a renewal
	// wakeWithin is the maximum time from a release to the grant. A waiter that misses the message of the release tries
	// at the end of the lease, or earlier if its subscription doesn't work: then it polls.
	wakeWithin = probeLease / 2
	lookEvery  = 5 * time.Millisecond
)

// errLate means that a waiter didn't get the lock within wakeWithin after a release.
var errLate = errors.New("a waiter wasn't woken by the release")

// attempt uses locks in the way that a service does.
type attempt struct {
	id   string // for a kind of lock, the id of its ACL rules
	kind string
	try  func(ctx context.Context, c *lock.Client, t *target) error
}

var attempts = []attempt{
	{"mutex", "Mutex", func(ctx context.Context, c *lock.Client, t *target) error {
		return takeAndRelease(ctx, c.Mutex(t.fresh()))
	}},
	{"fair_mutex", "FairMutex", func(ctx context.Context, c *lock.Client, t *target) error {
		return takeAndRelease(ctx, c.FairMutex(t.fresh()))
	}},
	{"rw_mutex", "RWMutex", func(ctx context.Context, c *lock.Client, t *target) error {
		m := c.RWMutex(t.fresh())
		return errors.Join(takeAndRelease(ctx, m), takeAndRelease(ctx, m.RLocker()))
	}},
	{"semaphore", "Semaphore", func(ctx context.Context, c *lock.Client, t *target) error {
		s := c.Semaphore(t.fresh())
		return cmp.Or(s.EnsurePermits(ctx, 1), takeAndRelease(ctx, s))
	}},
	{"unleased_semaphore", "UnleasedSemaphore", func(ctx context.Context, c *lock.Client, t *target) error {
		s := c.UnleasedSemaphore(t.fresh())
		_, err := s.TrySetPermits(ctx, 1)
		return cmp.Or(err, s.TryAcquire(ctx, 1), s.Release(ctx, 1))
	}},
	{"latch", "Latch", func(ctx context.Context, c *lock.Client, t *target) error {
		l := c.Latch(t.fresh())
		_, err := l.TrySetCount(ctx, 1)
		return cmp.Or(err, l.CountDown(ctx))
	}},
	{"multi", "Multi", func(ctx context.Context, c *lock.Client, t *target) error {
		return takeAndRelease(ctx, c.Multi([]string{t.fresh(), t.fresh()}))
	}},
	{"renewal", "renewal", outliveRenewal},
	{"waiting", "two clients", contend},
}

// askLocks makes the chosen attempts, until one shows that Redis is unavailable for locks.
func askLocks(ctx context.Context, t *target) {
	c, err := t.client()
	if err != nil {
		t.tell("locks", "", facts{"id": "kinds"}, err)
		return
	}
	defer t.close(ctx, c)
	for _, a := range attempts {
		if !t.chosen(a.id) {
			continue
		}
		timeout := t.opts.Timeout
		if a.id == "renewal" {
			timeout += renewLease
		}
		tryCtx, cancel := context.WithTimeout(ctx, timeout)
		err := a.try(tryCtx, c, t)
		cancel()
		f := facts{"id": "lock_" + a.id, "kind": a.kind}
		switch {
		case errors.Is(err, lock.ErrLost):
			f["cause"] = "lost"
		case errors.Is(err, errLate):
			f["cause"] = "late"
		case refused(err):
			f["cause"] = "refused"
		}
		if a.id == "mutex" || a.id == "waiting" || t.uses(a.id) {
			f["needed"] = "yes"
		}
		t.tell("locks", "", f, err)
		if errors.Is(err, lock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, lock.ErrHeld) {
			// The other attempts would wait as long.
			t.tell("locks", "", facts{"id": "lock_others"},
				errors.New("Redis is unavailable for locks, as the finding lock_"+a.id+" says"))
			return
		}
	}
}

// client returns a client like the service's, without telemetry.
func (t *target) client() (*lock.Client, error) {
	return lock.New(t.server.UniversalClient, lock.WithKeyPrefix(t.server.Prefix), lock.WithClientID("lockdog-doctor"),
		lock.WithLease(probeLease), lock.WithLogger(slog.New(slog.DiscardHandler)))
}

func (t *target) close(ctx context.Context, c *lock.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.opts.Timeout)
	defer cancel()
	_ = c.Close(ctx)
}

// takeAndRelease is the attempt for all kinds with leases.
func takeAndRelease(ctx context.Context, m lock.Locker) error {
	l, err := m.TryLock(ctx)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

// outliveRenewal holds locks until each has been renewed or lost: two Mutexes, whose renewals share a call, and, if
// chosen, an RWMutex, which has several keys.
func outliveRenewal(ctx context.Context, c *lock.Client, t *target) (err error) {
	lockers := []lock.Locker{
		c.Mutex(t.fresh(), lock.WithLease(renewLease)), c.Mutex(t.fresh(), lock.WithLease(renewLease)),
	}
	if t.chosen("rw_mutex") {
		lockers = append(lockers, c.RWMutex(t.fresh(), lock.WithLease(renewLease)))
	}
	granted := make(map[*lock.Lease]time.Time) // lease -> its first deadline
	defer func() {
		for l := range granted {
			err = errors.Join(err, l.Release(ctx)) // if the lease is lost, this error says why
		}
	}()
	for _, m := range lockers {
		l, err := m.TryLock(ctx)
		if err != nil {
			return err
		}
		granted[l] = l.Deadline()
	}
	for l, first := range granted {
		for l.Err() == nil && !l.Deadline().After(first) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			time.Sleep(lookEvery)
		}
	}
	return nil
}

// contend makes a second client wait for a lock that the first one releases.
func contend(ctx context.Context, c *lock.Client, t *target) error {
	other, err := t.client()
	if err != nil {
		return err
	}
	defer t.close(ctx, other)
	name := t.fresh()
	held, err := c.Mutex(name).TryLock(ctx)
	if err != nil {
		return err
	}
	var waiter sync.WaitGroup
	var granted time.Time
	var waitErr error
	waiter.Go(func() {
		l, err := other.Mutex(name).Lock(ctx)
		if granted = time.Now(); err == nil {
			err = l.Release(ctx)
		}
		waitErr = err
	})
	waits := func(l lock.LeaseInfo) bool { return l.State == lock.StateWaiting }
	for ctx.Err() == nil && !slices.ContainsFunc(other.Leases(), waits) {
		time.Sleep(lookEvery)
	}
	released := time.Now()
	err = held.Release(ctx)
	waiter.Wait()
	switch {
	case err != nil:
		return err
	case errors.Is(waitErr, lock.ErrHeld), waitErr == nil && granted.Sub(released) > wakeWithin:
		return errLate
	}
	return waitErr
}

package doctor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lockdog/lockdog/lock"
)

const (
	probeLease = 5 * time.Second
	renewLease = 3 * time.Second // of the locks that are held over a renewal
	wakeWithin = time.Second     // a release wakes a waiter within that
	lookEvery  = 5 * time.Millisecond
)

// attempt takes and releases a lock of a kind.
type attempt struct {
	id   string
	kind string
	try  func(ctx context.Context, c *lock.Client, t *target) error
}

// takeAndRelease does it for all that have leases.
func takeAndRelease(ctx context.Context, m lock.Locker) error {
	l, err := m.TryLock(ctx)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

var attempts = []attempt{
	{"mutex", "Mutex", func(ctx context.Context, c *lock.Client, t *target) error {
		return takeAndRelease(ctx, c.Mutex(t.fresh("m")))
	}},
	{"fair_mutex", "FairMutex", func(ctx context.Context, c *lock.Client, t *target) error {
		return takeAndRelease(ctx, c.FairMutex(t.fresh("f")))
	}},
	{"rw_mutex", "RWMutex", func(ctx context.Context, c *lock.Client, t *target) error {
		m := c.RWMutex(t.fresh("w"))
		return errors.Join(takeAndRelease(ctx, m), takeAndRelease(ctx, m.RLocker()))
	}},
	{"semaphore", "Semaphore", func(ctx context.Context, c *lock.Client, t *target) error {
		s := c.Semaphore(t.fresh("s"))
		if err := s.EnsurePermits(ctx, 1); err != nil {
			return err
		}
		return takeAndRelease(ctx, s)
	}},
	{"unleased_semaphore", "UnleasedSemaphore", func(ctx context.Context, c *lock.Client, t *target) error {
		s := c.UnleasedSemaphore(t.fresh("u"))
		if _, err := s.TrySetPermits(ctx, 1); err != nil {
			return err
		}
		if err := s.TryAcquire(ctx, 1); err != nil {
			return err
		}
		return s.Release(ctx, 1)
	}},
	{"latch", "Latch", func(ctx context.Context, c *lock.Client, t *target) error {
		l := c.Latch(t.fresh("l"))
		if _, err := l.TrySetCount(ctx, 1); err != nil {
			return err
		}
		return l.CountDown(ctx)
	}},
	{"multi", "Multi", func(ctx context.Context, c *lock.Client, t *target) error {
		return takeAndRelease(ctx, c.Multi([]string{t.fresh("x"), t.fresh("y")}))
	}},
	{"renewal", "renewal", outliveRenewal},
	{"waiting", "two clients", contend},
}

// fresh is a name in the probe's slot, and notes the keys that a lock of that name may leave.
func (t *target) fresh(suffix string) string {
	name := t.sibling(suffix)
	key := t.server.Prefix + name
	t.probe(key, prefixed("lockdog_wait", key), "{"+key+"}:timeout")
	return name
}

// outliveRenewal holds locks until each was renewed: two, which share a call, and an RWMutex, which has several keys.
func outliveRenewal(ctx context.Context, c *lock.Client, t *target) (err error) {
	lockers := []lock.Locker{c.Mutex(t.fresh("r"), lock.WithWatchdog(renewLease)), c.Mutex(t.fresh("n"), lock.WithWatchdog(renewLease))}
	if t.chosen("rw_mutex") {
		lockers = append(lockers, c.RWMutex(t.fresh("e"), lock.WithWatchdog(renewLease)))
	}
	granted := make(map[*lock.Lease]time.Time) // with their first deadlines
	defer func() {
		for l := range granted {
			err = errors.Join(err, l.Release(ctx))
		}
	}()
	for _, m := range lockers {
		l, err := m.TryLock(ctx)
		if err != nil {
			return err
		}
		granted[l] = l.Deadline()
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for l, first := range granted {
		for l.Err() == nil && !l.Deadline().After(first) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if l.Err() != nil {
			return nil // Release says why
		}
	}
	return nil
}

// errNotWoken is that a release wasn't heard.
var errNotWoken = errors.New("a waiter wasn't woken by the release")

// contend has a second client wait for a lock that the first releases.
func contend(ctx context.Context, c *lock.Client, t *target) (err error) {
	other, err := t.client()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close(ctx, other)) }()
	name := t.fresh("c")
	held, err := c.Mutex(name).TryLock(ctx)
	if err != nil {
		return err
	}
	type got struct {
		*lock.Lease
		error
	}
	next := make(chan got, 1)
	go func() {
		l, err := other.Mutex(name).Lock(ctx)
		next <- got{l, err}
	}()
	waits := func() bool {
		for _, l := range other.Leases() {
			if l.State == lock.StateWaiting {
				return true
			}
		}
		return false
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !waits() && ctx.Err() == nil {
		<-tick.C
	}
	released := time.Now()
	err = held.Release(ctx)
	g := <-next
	took := time.Since(released)
	switch {
	case err != nil:
		return err
	case errors.Is(g.error, lock.ErrHeld): // it was released, and the waiter still takes it for held
		return errNotWoken
	case g.error != nil:
		return g.error
	case took > wakeWithin:
		return errors.Join(errNotWoken, g.Release(ctx))
	}
	return g.Release(ctx)
}

// client is one as the service has, but for its telemetry.
func (t *target) client() (*lock.Client, error) {
	return lock.New(t.server.UniversalClient, lock.WithKeyPrefix(t.server.Prefix), lock.WithClientID("lockdog-doctor"), lock.WithWatchdog(probeLease),
		lock.WithLogger(slog.New(slog.DiscardHandler)))
}

func (t *target) close(ctx context.Context, c *lock.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.opts.Timeout)
	defer cancel()
	return c.Close(ctx)
}

// kindFindings take and release a lock of each kind.
func kindFindings(ctx context.Context, t *target) (findings []Finding) {
	c, err := t.client()
	if err != nil {
		return []Finding{unknown("kinds", "", err)}
	}
	defer func() { _ = t.close(ctx, c) }()
	for _, a := range attempts {
		if a.id != "waiting" && a.id != "renewal" && !t.chosen(a.id) {
			continue
		}
		if ctx.Err() != nil {
			return findings
		}
		f, err := t.attempt(ctx, c, a)
		findings = append(findings, f)
		if errors.Is(err, lock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lock.ErrHeld) { // all others would wait as long
			return append(findings, unknown("lock_others", "", errors.New("Redis is unavailable for locks, as the finding lock_"+a.id+" says")))
		}
	}
	return findings
}

// attempt makes one, and judges it.
func (t *target) attempt(ctx context.Context, c *lock.Client, a attempt) (Finding, error) {
	timeout := t.opts.Timeout
	f := Finding{ID: "lock_" + a.id, Level: OK, Found: a.kind + ": taken and released"}
	switch a.id {
	case "waiting":
		f.Found = "two clients took a lock in turn"
	case "renewal":
		f.Found, timeout = "locks were held until they had been renewed", timeout+renewLease
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := a.try(ctx, c, t)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, lock.ErrLost):
		f.Level, f.Means, f.Fix = Fail, "the service loses its locks while it holds them", "look at what Redis says, and don't put a proxy between that refuses scripts"
	case errors.Is(err, errNotWoken):
		f.Level, f.Means, f.Fix = Warn, "waiters get a lock late", "see the findings about pub/sub and the ACL"
	case refused(err) && !t.uses(a.id) && a.id != "mutex" && a.id != "waiting":
		f.Level, f.Means, f.Fix = Warn, "this kind can't be used by this user", "see the finding acl_"+a.id
	case refused(err):
		f.Level, f.Means, f.Fix = Fail, "locks can't be used by this user", "see the findings about the ACL"
	default:
		f.Level, f.Means, f.Fix = Fail, "the service's locks will fail in the same way", "look at what Redis says"
	}
	f.Found = a.kind + ": " + err.Error()
	return f, err
}

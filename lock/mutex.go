package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// kindMutex is the value of lockdog.kind.
const kindMutex = "mutex"

// metaField is the field of a lock's hash that says more of its holder. Redisson's scripts don't look at it.
const metaField = "@lockdog"

// Locker is what every kind of lock does.
type Locker interface {
	TryLock(ctx context.Context) (*Lease, error)
	Lock(ctx context.Context) (*Lease, error)
	Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error
}

// Mutex describes a lock: its name and how to take it. It holds no state; taking it gives a Lease. It may be made for every
// use, or shared freely.
type Mutex struct {
	c    *Client
	name string
	key  string // in Redis: the client's prefix and the name
	cfg  *lockConfig
	tel  telemetry.Lock
	err  error // what is wrong with the name or the options
}

var _ Locker = (*Mutex)(nil)

// Mutex describes the lock with a name. It does no I/O and never fails: what is wrong with the name or the options
// is the error, matching ErrInvalid, of the first use.
func (c *Client) Mutex(name string, opts ...LockOption) *Mutex {
	if c == nil {
		return &Mutex{name: name, err: fmt.Errorf("%w: lock %q: the Client is nil; make one with New", ErrInvalid, name)}
	}
	m := &Mutex{c: c, name: name, key: c.cfg.prefix + name, cfg: c.cfg.lock.with(opts)}
	switch {
	case m.cfg.err != nil:
		m.err = fmt.Errorf("%w: lock %q: %w", ErrInvalid, name, m.cfg.err)
	case name == "": // whatever the prefix
		m.err = checkName(name)
	default:
		m.err = checkName(m.key)
	}
	if m.err != nil {
		return m
	}
	if limit := c.backend.Timeout(); m.cfg.patience >= limit {
		m.err = fmt.Errorf("%w: lock %q: WithReplicas(%d, %v): must be shorter than the ReadTimeout of the Redis client, %v", ErrInvalid, name, m.cfg.replicas, m.cfg.patience, limit)
		return m
	}
	m.tel = c.rec.Lock(name, kindMutex, m.cfg.group, m.cfg.spans)
	return m
}

// TryLock takes the lock if it is free. It asks once, and fails with a *HeldError, matching ErrHeld, if it isn't.
//
// Other errors: ErrDeadlock when ctx descends from the Context of a live lease of this lock; ErrClosed; ErrInvalid; the cause
// of ctx when it ended; else what Redis answered, or why it didn't.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) { return m.take(ctx, false) }

// Lock takes the lock, waiting for it until ctx ends or WithWait is over. The wait costs Redis nothing: a release wakes
// the first waiter of each process. In one process waiters are served in the order they came.
//
// The lease follows ctx: when it ends, the Context of the lease does. See WithWait and WithLeaseContext to bound the wait
// only.
//
// The error is a *HeldError when WithWait is over; it matches ErrHeld and the cause of ctx when ctx ended while waiting;
// else as for TryLock.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.take(ctx, true) }

// Do runs fn under the lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	_, err := Do(ctx, m, func(ctx context.Context, l *Lease) (struct{}, error) {
		return struct{}{}, fn(ctx, l)
	})
	return err
}

// Holder says who holds a lock.
type Holder struct {
	Held      bool
	Owner     string        // "<client id>:<random>-<seq>" for a lockdog client
	Count     int           // how often a Redisson holder has entered; 1 for ours
	Remaining time.Duration // until the lease ends unless renewed; negative: it has no expiry
	Token     int64         // 0 when the holder isn't a lockdog client
	TraceID   string        // of the trace in which the holder took it, "" when unknown
}

// Inspect says who holds the lock, and for how long yet. A free lock is no error: Holder.Held is false.
func (m *Mutex) Inspect(ctx context.Context) (Holder, error) {
	if err := m.usable(ctx); err != nil {
		return Holder{}, err
	}
	if !m.c.gate.enter() {
		return Holder{}, m.wrap("inspect", ErrClosed)
	}
	defer m.c.gate.leave()
	h, err := m.c.transport.inspect(ctx, m.key)
	return h, m.wrap("inspect", err)
}

// ForceUnlock frees the lock whoever holds it, and wakes who waits for it. It says whether the lock was held. A holder in a
// lockdog client is told within milliseconds that its lease is lost, if its subscription stands (it is made with the client's
// first grant), else at its next renewal; what it does until then is for tokens to stop.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) {
	if err := m.usable(ctx); err != nil {
		return false, err
	}
	if !m.c.gate.enter() {
		return false, m.wrap("force unlock", ErrClosed)
	}
	defer m.c.gate.leave()
	was, err := m.c.transport.force(ctx, m.key, m.c.cfg.prefix+controlPrefix)
	m.c.waits.wake(m.key)
	return was, m.wrap("force unlock", err)
}

// usable says why the lock can't be used with ctx.
func (m *Mutex) usable(ctx context.Context) error {
	switch {
	case m != nil && m.err != nil:
		return m.err
	case m == nil || m.c == nil:
		return fmt.Errorf("%w: a Mutex is made by Client.Mutex", ErrInvalid)
	case ctx == nil:
		return fmt.Errorf("%w: lock %q: ctx is nil", ErrInvalid, m.name)
	case ctx.Err() != nil:
		return m.wrap("acquire", context.Cause(ctx))
	}
	return nil
}

// take is Lock and TryLock.
func (m *Mutex) take(ctx context.Context, wait bool) (*Lease, error) {
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	if lc := m.cfg.leaseCtx; lc != nil && lc.Err() != nil {
		return nil, m.wrap("acquire", fmt.Errorf("the ctx given to WithLeaseContext has ended: %w", context.Cause(lc)))
	}
	if !m.c.gate.enter() {
		return nil, m.wrap("acquire", ErrClosed)
	}
	defer m.c.gate.leave()

	sctx, a := m.c.rec.StartAcquire(ctx, &m.tel, m.cfg.lease)
	l, outcome, err := m.compete(ctx, sctx, &a, wait)
	if err != nil {
		err = m.wrap("acquire", err)
		a.Fail(outcome, err)
		return nil, err
	}
	return l, nil
}

// compete takes the lock for a lease that follows ctx. Calls to Redis run in sctx, which is ctx plus the span.
func (m *Mutex) compete(ctx, sctx context.Context, a *telemetry.Acquire, wait bool) (*Lease, telemetry.AcquireOutcome, error) {
	if l := held(ctx, m.c, m.key); l != nil {
		if !m.cfg.reentrant {
			return nil, telemetry.AcquireError, ErrDeadlock
		}
		if joined := l.g.join(ctx, m); joined != nil {
			a.Reenter(&l.g.hold)
			return joined, telemetry.AcquireReentered, nil
		}
	}

	b := m.newBid(a)
	var v verdict
	var err error
	if !wait || !m.c.waits.busy(m.key) { // Lock doesn't overtake who waits here; TryLock may
		v, err = m.attempt(sctx, a, b)
		switch {
		case err != nil:
			m.giveUp(b)
			if ctx.Err() != nil {
				return nil, contextOutcome(ctx), err
			}
			return nil, telemetry.AcquireError, err
		case !v.granted:
			a.BlockedBy(v.holder.Owner, parseMeta(v.meta).traceparent)
			if !wait {
				held := v.holder
				held.Name = m.name
				return nil, telemetry.AcquireHeld, &held
			}
		}
	}
	if !v.granted {
		var patience <-chan time.Time
		began := time.Now()
		if m.cfg.wait >= 0 {
			timer := time.NewTimer(m.cfg.wait)
			defer timer.Stop()
			patience = timer.C
		}
		b, v, err = m.c.waits.wait(sctx, m.c.waits.enter(m, b, v), a, patience)
		switch {
		case err != nil && ctx.Err() == nil && m.cfg.wait >= 0 && time.Since(began) >= m.cfg.wait:
			return nil, telemetry.AcquireTimeout, err
		case err != nil && ctx.Err() != nil:
			return nil, contextOutcome(ctx), err
		case errors.Is(err, ErrClosed):
			return nil, telemetry.AcquireCanceled, err
		case err != nil:
			return nil, telemetry.AcquireError, err
		}
	}
	if !m.c.isClosing() {
		if l := m.newGrant(ctx, a, b, v.token, v.sent); l != nil {
			return l, telemetry.AcquireAcquired, nil
		}
	}
	m.c.sweepers.add(b, b.ghosts)
	return nil, telemetry.AcquireCanceled, ErrClosed
}

// keys are the lock's key and the counter that its tokens are drawn from.
func (m *Mutex) keys() []string { return []string{m.key, fenceKey(m.c.cfg.prefix, m.key)} }

// attempt asks Redis for the lock.
func (m *Mutex) attempt(ctx context.Context, a *telemetry.Acquire, b *bid) (verdict, error) {
	a.Attempt()
	v, err := m.c.transport.acquire(ctx, a, b)
	if err == nil && v.granted && v.acked < m.cfg.replicas {
		m.c.sweepers.add(b, b.ghosts)
		return verdict{}, &ReplicasError{Name: m.name, Wanted: m.cfg.replicas, Acked: v.acked, Within: m.cfg.patience}
	}
	return v, err
}

// newBid returns a bid under an owner that no other grant ever had.
func (m *Mutex) newBid(a *telemetry.Acquire) *bid {
	b := &bid{m: m, owner: m.c.newOwner()}
	if m.cfg.links {
		b.traceparent = a.Traceparent()
	}
	return b
}

// giveUp removes what a failed bid may leave behind.
func (m *Mutex) giveUp(b *bid) {
	if !b.ghosts.IsZero() { // a call of it that wasn't answered may have taken the lock, or may do so yet
		m.c.sweepers.add(b, b.ghosts)
	}
}

func contextOutcome(ctx context.Context) telemetry.AcquireOutcome {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return telemetry.AcquireTimeout
	}
	return telemetry.AcquireCanceled
}

// wrap gives an error the lock's name, unless it has it.
func (m *Mutex) wrap(op string, err error) error { return wrapError(m.name, op, err) }

func wrapError(name, op string, err error) error {
	var held *HeldError
	var lost *LostError
	var replicas *ReplicasError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &held), errors.As(err, &lost), errors.As(err, &replicas):
		return err
	case strings.Contains(err.Error(), "WRONGTYPE"):
		return fmt.Errorf("%w: lock %q: %s: its key in Redis holds another type than a lock's hash; choose another name, or delete the key: %w", ErrInvalid, name, op, err)
	}
	return fmt.Errorf("lockdog: lock %q: %s: %w", name, op, err)
}

package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// maxNames bounds the names of a Multi: Redis does nothing else while it takes them.
const maxNames = 1024

// multiKind is that of each lock of a Multi: a Mutex, but for what it is called.
var multiKind = func() *kind {
	k := *mutexKind
	k.name = "multi"
	return &k
}()

// Multi describes several locks that are taken together: all of them or none. Taking it gives one Lease, with a token for each
// name. In Redis each is a Mutex of its name, so that whoever locks one of the names, be it in Java, is excluded, and excludes the Multi.
//
// Names are taken in the order of their bytes, whatever their order in the call. Two Multis never wait for each other in a circle, nor do a
// Multi and Mutexes that are taken one within the other in that order.
//
// Where the names live together in Redis, on one server or, in a Cluster or a Ring, by a common {hash tag}, they are taken in one
// atomic script and one round trip if they are all free, and given back in another. Otherwise they are taken one by one. Lock
// waits for a held one while it holds those before it, and renews them; WithMaxHold and WithHeartbeat count from when it has them all. If
// one of those is lost meanwhile, it gives the others back and starts again.
//
// The lease lives as long as all its locks do, and its Deadline is the nearest of theirs. When one is lost, the lease is, with a
// *LostError that wraps the one of that name; the others are renewed no more, and are to be released: Release gives back what there is. Each
// lock is renewed by itself, as kind "multi". Taken, waited for, held, lost and given back they are counted once, in the group of the first; each has
// spans of its own as children of the Multi's.
type Multi struct {
	lock  // what they have in common; its name is all of theirs
	locks []lock
}

var _ Locker = (*Multi)(nil)

// Multi describes the locks with these names, 1 to 1024, none twice. It does no I/O and never fails: what is wrong with the names or
// the options is the error, matching ErrInvalid, of the first use.
func (c *Client) Multi(names []string, opts ...LockOption) *Multi {
	names = slices.Sorted(slices.Values(names)) // the prefix of their keys is the same
	m := &Multi{lock: lock{c: c, kind: multiKind, name: strings.Join(names, ",")}}
	switch {
	case len(names) == 0:
		m.err = fmt.Errorf("%w: Multi without names: at least one is needed", ErrInvalid)
	case len(names) > maxNames:
		m.err = fmt.Errorf("%w: Multi of %d names: at most %d are allowed", ErrInvalid, len(names), maxNames)
	default:
		m.locks = make([]lock, len(names))
	}
	for i := range m.locks {
		m.locks[i] = c.describe(multiKind, names[i], opts)
		if m.err == nil {
			m.err = m.locks[i].err
		}
		if m.err == nil && i > 0 && names[i] == names[i-1] {
			m.err = fmt.Errorf("%w: Multi: the name %q is given twice", ErrInvalid, names[i])
		}
		if m.err == nil {
			m.locks[i].tel = m.locks[i].tel.Member(m.locks[i].node)
		}
	}
	if m.err == nil {
		m.cfg = m.locks[0].cfg
	}
	return m
}

// TryLock takes all the locks if they are free. If one isn't, it fails with a *HeldError that has its name, and holds none.
//
// Other errors are those of Mutex.TryLock. ErrDeadlock: ctx descends from the Context of a lease of one of the names. With
// WithReentrancy those are joined, and the others taken.
func (m *Multi) TryLock(ctx context.Context) (*Lease, error) { return m.take(ctx, false) }

// Lock takes all the locks, waiting for each that is held until ctx ends or WithWait, which is for all of them, is over. Else it is
// as Mutex.Lock.
func (m *Multi) Lock(ctx context.Context) (*Lease, error) { return m.take(ctx, true) }

// Do runs fn under all the locks, with the lease's Context, and releases them. See the function Do for what it returns.
func (m *Multi) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m, fn)
}

// TryDo is Do if all the locks can be had at once. If not, it fails as TryLock does, and doesn't call fn.
func (m *Multi) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m, fn)
}

// take is Lock and TryLock.
func (m *Multi) take(ctx context.Context, wait bool) (*Lease, error) {
	if m == nil {
		return nil, (*lock)(nil).takeable(ctx)
	}
	if err := m.takeable(ctx); err != nil {
		return nil, err
	}
	if !m.c.gate.enter() {
		return nil, m.wrap("acquire", ErrClosed)
	}
	defer m.c.gate.leave()
	ctx, stop := m.bounded(ctx)
	defer stop()
	t := &multiTry{m: m, ctx: ctx, record: newRecord(ctx, &m.locks[0], m.name), wait: wait}
	if wait && m.cfg.wait >= 0 {
		t.until = time.Now().Add(m.cfg.wait)
	}
	for {
		l, outcome, err := t.run()
		if err == nil {
			return l, nil
		}
		if !t.again {
			err = m.wrap("acquire", err)
			t.record.acquire.Fail(outcome, err)
			return nil, err
		}
	}
}

// multiTry is one call of Lock or TryLock.
type multiTry struct {
	m      *Multi
	ctx    context.Context // the caller's
	record *record         // of all names
	wait   bool
	until  time.Time // the end of the wait, zero: none

	// Of one run:
	b        *bundle
	acquires []telemetry.Acquire
	spans    []context.Context // the record's ctx, plus the span of each acquire
	joined   []*Lease          // the leases of locks in whose Context ctx was made
	open     []int             // the locks that it has yet to get, in order
	again    bool              // it failed as one of those was lost
}

// run tries to get all of the locks.
func (t *multiTry) run() (*Lease, telemetry.AcquireOutcome, error) {
	m := t.m
	n := len(m.locks)
	t.b = newBundle(t.ctx, m.locks, m.name, n, n)
	t.acquires, t.spans = make([]telemetry.Acquire, n), make([]context.Context, n)
	t.joined, t.open, t.again = nil, nil, false
	for i := range m.locks {
		t.spans[i], t.acquires[i] = m.c.rec.StartAcquire(t.record.ctx, &m.locks[i].tel, m.cfg.lease)
	}
	outcome, err := t.rejoin()
	if err == nil && len(t.open) > 1 {
		outcome, err = t.together()
	}
	if err == nil {
		outcome, err = t.oneByOne()
	}
	if err != nil {
		t.giveUp(outcome, err)
		return nil, outcome, err
	}
	if len(t.joined) == n {
		t.record.joined(t.b, t.joined)
	} else {
		t.record.granted(t.b)
	}
	return &t.b.whole, outcome, nil
}

// rejoin joins the locks in whose Context ctx was made. The others are open.
func (t *multiTry) rejoin() (telemetry.AcquireOutcome, error) {
	locks := t.m.locks
	outer := make([]*Lease, len(locks))
	for i := range locks {
		if outer[i] = held(t.ctx, &locks[i]); outer[i] != nil && !locks[i].joins(outer[i]) {
			return telemetry.AcquireError, locks[i].wrap("acquire", ErrDeadlock)
		}
	}
	for i, o := range outer {
		if o != nil {
			if l := o.g.join(t.ctx, &locks[i]); l != nil && t.b.add(l) {
				t.acquires[i].Reenter(&o.g.hold)
				t.joined = append(t.joined, o)
				continue
			}
		}
		t.open = append(t.open, i)
	}
	return telemetry.AcquireReentered, nil
}

// together takes the open locks in one script, where that is possible. If one of them is held, and Lock waits for it, they stay
// open.
func (t *multiTry) together() (telemetry.AcquireOutcome, error) {
	c, locks := t.m.c, t.m.locks
	keys, claims := make([]string, len(t.open)), make([]*claim, len(t.open))
	for n, i := range t.open {
		keys[n] = locks[i].key
	}
	if !c.together(keys) || t.wait && slices.ContainsFunc(keys, c.waits.busy) { // Lock doesn't overtake who waits here
		return telemetry.AcquireError, nil
	}
	for n, i := range t.open {
		claims[n] = locks[i].newClaim(&t.acquires[i])
		t.acquires[i].Attempt()
	}
	t.record.acquire.Attempt()
	sctx := t.record.ctx
	j, err := c.transport.acquireAll(sctx, &t.record.acquire, claims)
	if err == nil && j.Granted {
		return t.granted(claims, j)
	}
	cleanUpAll(claims, false)
	switch {
	case err == nil:
		at := t.open[j.at]
		t.acquires[at].BlockedBy(j.Owner, j.Traceparent)
		t.record.acquire.BlockedBy(j.Owner, j.Traceparent)
		if t.wait {
			return telemetry.AcquireError, nil
		}
		return telemetry.AcquireHeld, j.held(locks[at].name)
	case sctx.Err() != nil:
		return contextOutcome(sctx), err
	case wantsOneByOne(err):
		if redisfail.IsCrossSlot(err) {
			c.transport.nodeOf(keys[0]).singleSlotOnly.Store(true)
		}
		return telemetry.AcquireError, nil
	case t.wait && redisfail.IsTemporaryRefusal(err): // waited out one by one
		return telemetry.AcquireError, nil
	}
	return telemetry.AcquireError, err
}

// granted makes grants of what the script took.
func (t *multiTry) granted(claims []*claim, j multiAcquireReply) (telemetry.AcquireOutcome, error) {
	c, cfg := t.m.c, t.m.cfg
	if j.acked < cfg.replicas {
		cleanUpAll(claims, true)
		return telemetry.AcquireError, &ReplicasError{Name: t.m.name, Wanted: cfg.replicas, Acked: j.acked, Within: cfg.patience}
	}
	for n, i := range t.open {
		var l *Lease
		if !c.isClosing() {
			l = t.m.locks[i].newGrant(t.ctx, &t.acquires[i], claims[n], j.tokens[n], j.sent)
		}
		if l == nil {
			cleanUpAll(claims[n:], true)
			return telemetry.AcquireCanceled, ErrClosed
		}
		t.b.add(l)
	}
	t.open = nil
	return telemetry.AcquireAcquired, nil
}

// oneByOne takes the open locks, each when it has those before it.
func (t *multiTry) oneByOne() (telemetry.AcquireOutcome, error) {
	whole, cfg := &t.b.whole, t.m.cfg
	limited := cfg.maxHold > 0 || cfg.heartbeat > 0
	for n, i := range t.open {
		lk := &t.m.locks[i]
		// The wait for one ends when another was lost.
		sctx, cancel := context.WithCancelCause(t.spans[i])
		unwatch := context.AfterFunc(whole.Context(), func() { cancel(context.Cause(whole.Context())) })
		b, v, outcome, err := lk.acquireOrWait(sctx, &t.acquires[i], t.wait, acquireParams{until: t.until, whole: t.b})
		unwatch()
		cancel(nil)
		t.record.acquire.Inherit(&t.acquires[i])
		if err != nil {
			return outcome, lk.wrap("acquire", err)
		}
		var l *Lease
		if !lk.c.isClosing() {
			l = lk.newGrant(t.ctx, &t.acquires[i], b, v.Token, v.sent)
		}
		if l == nil {
			b.cleanUp()
			return telemetry.AcquireCanceled, ErrClosed
		}
		if limited && n < len(t.open)-1 { // the limits count from when it has them all
			l.g.unlimited()
		}
		if !t.b.add(l) {
			leave(t.ctx, l.Release)
			return telemetry.AcquireError, context.Cause(whole.Context())
		}
	}
	return telemetry.AcquireAcquired, nil
}

// giveUp gives back what it has. What was lost while it waited for more can be had again.
func (t *multiTry) giveUp(outcome telemetry.AcquireOutcome, err error) {
	for i := range t.acquires {
		t.acquires[i].Fail(outcome, err)
	}
	t.again = t.wait && t.ctx.Err() == nil && errors.Is(t.b.whole.Err(), ErrLost)
	t.b.giveUp(t.ctx)
}

// cleanUpAll removes what claims may have left in Redis: all of them if they were granted, otherwise those that may still be.
func cleanUpAll(claims []*claim, granted bool) {
	for _, b := range claims {
		if granted || b.mayWriteLate() {
			b.cleanUp()
		}
	}
}

// together reports whether one script may use all keys: where there is one server, or they have one hash tag.
func (c *Client) together(keys []string) bool {
	if !c.backend.Traits().PerNode && !c.transport.nodeOf(keys[0]).singleSlotOnly.Load() {
		return true
	}
	tag, ok := backend.HashTag(keys[0])
	return ok && !slices.ContainsFunc(keys, func(key string) bool {
		other, ok := backend.HashTag(key)
		return !ok || other != tag
	})
}

// wantsOneByOne reports whether a script failed since it has several keys, or those of several locks.
func wantsOneByOne(err error) bool {
	return redisfail.IsCrossSlot(err) || redisfail.Classify(err).Keys == redisfail.KeysSplit
}

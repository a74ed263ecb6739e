package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// maxNames limits the names of a Multi: Redis serves no other command while the script takes them.
const maxNames = 1024

// multiKind is the kind of each lock of a Multi: mutexKind, but called "multi".
var multiKind = mutexKind.named("multi")

// Multi describes several locks that are taken together: all of them or none. Taking it returns one Lease, with a token
// for each name. In Redis each name is a Mutex. So a Multi excludes other holders of its names, also Java programs.
//
// Names are taken in the order of their bytes, whatever their order in the call. So two Multis don't deadlock, nor do a
// Multi and nested Mutexes that are taken in that order, unless a caller held other locks before.
//
// If the names are on one server, or have a common {hash tag} in a Cluster or a Ring, one atomic script takes them in
// one round trip if all are free. As a rule, another script releases them. Lock takes the names one by one if one of
// them is held, or if other calls of this client wait for one. Both Lock and TryLock do so if one script can't use all
// the keys. While Lock waits for a name, it holds and renews the names before it. If one of those is lost during the
// wait, Lock releases the others and starts again. WithMaxHold and WithHeartbeat count from the grant of the last name.
//
// The lease lives as long as all its locks do, and its Deadline is the earliest of theirs. When one is lost, the lease
// is lost, with a *LostError that wraps the one of that name. Then the others aren't renewed any more, unless other
// leases share their grants (WithReentrancy). Release releases them.
//
// Each lock is renewed separately, as kind "multi". Acquires, holds, losses and releases are counted once, in the group
// of the first name. A wait is counted in the group of the name that it waits for. Each name has its own spans, as
// children of the spans of the Multi.
type Multi struct {
	lock  // what the locks share; its name is all names, joined
	locks []lock
}

var _ Locker = (*Multi)(nil)

// Multi describes the locks with these names, 1 to 1024, none twice. It does no I/O and never fails. An invalid name or
// option is reported by the first use, as an error that matches ErrInvalid.
func (c *Client) Multi(names []string, opts ...LockOption) *Multi {
	names = slices.Sorted(slices.Values(names)) // their keys have the same prefix, and so the same order
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

// TryLock takes all the locks if they are free. If one isn't, it takes none and fails with a *HeldError that has its
// name.
//
// Other errors are those of Mutex.TryLock. The error matches ErrDeadlock if ctx descends from the Context of a live
// lease of one of the names. With WithReentrancy, TryLock joins such leases and takes the other names.
func (m *Multi) TryLock(ctx context.Context) (*Lease, error) { return m.take(ctx, false) }

// Lock takes all the locks. It waits for those that are held until ctx ends or WithWait is over; WithWait applies to
// all of them together. Otherwise it is like Mutex.Lock.
func (m *Multi) Lock(ctx context.Context) (*Lease, error) { return m.take(ctx, true) }

// Do runs fn under all the locks, with the lease's Context, and releases them. See the function Do for what it returns.
func (m *Multi) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m, fn)
}

// TryDo is Do if all the locks are free. Otherwise it fails as TryLock does, and doesn't call fn.
func (m *Multi) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m, fn)
}

// Inspect returns the holder of each name. All names are asked for at once, but not in one step, so the answers may be
// of different moments. If some requests fail, the result has the other names, and the error says which failed.
func (m *Multi) Inspect(ctx context.Context) (map[string]Holder, error) {
	if err := m.base().usable(ctx, "inspect"); err != nil {
		return nil, err
	}
	found, errs := inspectEach(ctx, m.locks, func(lk *lock) string { return lk.name })
	return found, errors.Join(errs...)
}

// ForceUnlock frees each of the names, as Mutex.ForceUnlock does, and reports whether one was held. If some can't be
// freed, the error says which; the others are free.
func (m *Multi) ForceUnlock(ctx context.Context) (bool, error) {
	if err := m.base().usable(ctx, "force unlock"); err != nil {
		return false, err
	}
	was, errs := forceUnlockEach(ctx, m.locks, callerOf())
	return was, errors.Join(errs...)
}

func (m *Multi) base() *lock {
	if m == nil {
		return nil
	}
	return &m.lock
}

// take is Lock if wait is set, otherwise TryLock.
func (m *Multi) take(ctx context.Context, wait bool) (*Lease, error) {
	if err := m.base().takeable(ctx); err != nil {
		return nil, err
	}
	if !m.c.gate.enter() {
		return nil, m.wrap("acquire", ErrClosed)
	}
	defer m.c.gate.leave()
	ctx, stop := m.bounded(ctx)
	defer stop()
	t := &multiTry{m: m, ctx: ctx, record: newRecord(ctx, &m.locks[0], m.name), wait: wait}
	t.params.sample = t.record.sample
	switch {
	case !wait:
		t.params.tryDeadline = m.tryDeadline()
	case m.cfg.wait >= 0:
		t.params.waitDeadline = time.Now().Add(m.cfg.wait)
	}
	for {
		l, err := t.run()
		if err == nil {
			return l, nil
		}
		if !t.again {
			if redisfail.IsWrongType(err) { // the error doesn't say which key
				_, errs := inspectEach(ctx, m.locks, func(lk *lock) string { return lk.name })
				err = cmp.Or(errors.Join(errs...), err)
			}
			err = m.wrap("acquire", err)
			t.record.acquire.Fail(t.outcome, err)
			return nil, err
		}
	}
}

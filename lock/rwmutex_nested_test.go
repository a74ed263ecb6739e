package lock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// A read-write lock within one of its own leases.

// Within the write lease a read lease is had at once, whoever waits, and outlives it.
func TestRWDowngrade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		a, b := r.client(), r.client()
		m := a.RWMutex("job")
		ctx, cancel := context.WithCancel(r.ctx())
		w := enter(t, ctx, m)
		local := begin(r.ctx(), m.RLocker())
		waiting(t, a, 1)
		writer := begin(r.ctx(), b.RWMutex("job"))
		r.enlisted(1)

		rd, err := m.RLock(w.Context())
		must(t, "RLock", err)
		if rd.Token() <= w.Token() {
			t.Errorf("token %d after %d", rd.Token(), w.Token())
		}
		r.holds("write", w, rd)
		h, err := b.RWMutex("job").Inspect(r.ctx())
		if err != nil || h.Mode != "write" || h.Owner != w.Owner() || h.Readers != 1 || h.Token != w.Token() {
			t.Errorf("%+v, %v", h, err)
		}
		pass(t, clearly)
		free(t, w)
		other := granted(t, local) // it has waited since before the writer left
		r.holds("read", rd, other)
		always(t, 50*time.Millisecond, func() bool { return rd.Context().Err() == nil && len(writer) == 0 })
		if h, err := b.RWMutex("job").Inspect(r.ctx()); err != nil || h.Mode != "read" || h.Readers != 2 {
			t.Errorf("%+v, %v", h, err)
		}
		free(t, other)
		cancel() // what the write lease followed
		_ = mustBeCanceled(t, rd, lock.ReasonContext)
		mustMatch(t, context.Cause(rd.Context()), context.Canceled)
		free(t, rd)
		free(t, granted(t, writer))
		r.nothing()
	})
}

// What ends the read lease that was taken within a write lease, and what doesn't.
func TestRWDowngradeFollows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, r *rwRig, m *lock.RWMutex){
		"its own ctx": func(t *testing.T, r *rwRig, m *lock.RWMutex) {
			w := try(t, m)
			ctx, cancel := context.WithCancel(w.Context())
			rd := enter(t, ctx, m.RLocker())
			cancel()
			_ = mustBeCanceled(t, rd, lock.ReasonContext)
			freeAll(t, []*lock.Lease{rd, w})
		},
		"its own ctx, and then the release": func(t *testing.T, r *rwRig, m *lock.RWMutex) {
			w := try(t, m)
			ctx, cancel := context.WithCancel(w.Context())
			rd := enter(t, ctx, m.RLocker())
			cancel()
			free(t, w)
			_ = mustBeCanceled(t, rd, lock.ReasonContext)
			free(t, rd)
		},
		"a writer that was joined": func(t *testing.T, r *rwRig, m *lock.RWMutex) {
			ctx, cancel := context.WithCancel(r.ctx())
			outer := enter(t, ctx, m)
			inner := enter(t, outer.Context(), m)
			rd := enter(t, inner.Context(), m.RLocker())
			freeAll(t, []*lock.Lease{inner, outer})
			always(t, 20*time.Millisecond, func() bool { return rd.Context().Err() == nil })
			r.holds("read", rd)
			cancel()
			_ = mustBeCanceled(t, rd, lock.ReasonContext)
			free(t, rd)
		},
		"the writer's loss": func(t *testing.T, r *rwRig, _ *lock.RWMutex) {
			c := r.client()
			w := try(t, c.RWMutex("job", lock.WithLease(steady)))
			rd := enter(t, w.Context(), c.RWMutex("job").RLocker())
			r.must(r.rdb.HDel(r.ctx(), r.key(), w.Owner()))
			mustBeLost(t, w, lock.CauseTaken)
			mustMatch(t, mustBeCanceled(t, rd, lock.ReasonContext), lock.ErrLost)
			free(t, rd)
		},
		"WithLifetime": func(t *testing.T, r *rwRig, _ *lock.RWMutex) {
			ctx, cancel := context.WithCancel(r.ctx())
			rw := r.client()
			w := try(t, rw.RWMutex("job"))
			rd := enter(t, w.Context(), rw.RWMutex("job", lock.WithLifetime(ctx)).RLocker())
			free(t, w)
			if rd.Context().Err() != nil {
				t.Error("it ended with the writer's release")
			}
			cancel()
			_ = mustBeCanceled(t, rd, lock.ReasonContext)
			free(t, rd)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRWRig(t)
				test(t, r, r.client().RWMutex("job", lock.WithReentrancy()))
			})
		})
	}
}

// Whoever would wait for itself is told so at once, or joins.
func TestRWReentry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		c := r.client()
		m, join := c.RWMutex("job"), c.RWMutex("job", lock.WithReentrancy())
		within := func(l *lock.Lease, lk lock.Locker) (*lock.Lease, error) { return lk.Lock(l.Context()) }

		rd := try(t, m.RLocker())
		writer := begin(r.ctx(), r.client().RWMutex("job"))
		r.enlisted(1)
		for _, lk := range []lock.Locker{m, join} {
			_, err := within(rd, lk)
			mustMatch(t, err, lock.ErrDeadlock)
			if !strings.Contains(err.Error(), "release the read lease first") {
				t.Errorf("%v; it should say what to do", err)
			}
		}
		_, err := within(rd, m.RLocker())
		mustMatch(t, err, lock.ErrDeadlock)
		joined, err := within(rd, join.RLocker())
		if err != nil || joined.Owner() != rd.Owner() {
			t.Fatalf("%v, %v; want to join %s", joined, err, rd.Owner())
		}
		_, err = within(rd, c.Mutex("job", lock.WithReentrancy())) // it wouldn't be alone
		mustMatch(t, err, lock.ErrDeadlock)
		freeAll(t, []*lock.Lease{joined, rd})
		free(t, granted(t, writer))

		w := try(t, m)
		_, err = within(w, m)
		mustMatch(t, err, lock.ErrDeadlock)
		rd = enter(t, w.Context(), m.RLocker())
		for lk, of := range map[lock.Locker]*lock.Lease{join: w, join.RLocker(): rd} {
			joined, err := within(rd, lk)
			if err != nil || joined.Owner() != of.Owner() {
				t.Errorf("within both: %v, %v; want to join %s", joined, err, of.Owner())
				continue
			}
			free(t, joined)
		}
		freeAll(t, []*lock.Lease{rd, w})
		r.nothing()
	})
}

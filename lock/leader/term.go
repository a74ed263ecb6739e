package leader

import (
	"context"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// term is one lease of the leader's, and the ctx of fn. It adds to a child of the lease's Context that it ends with the ctx given to Run,
// and that its Err is never late: it asks both, and so the clock.
type term struct {
	context.Context
	cancel   context.CancelCauseFunc
	unfollow func() bool
	run      context.Context // given to Run
	work     context.Context // the lease's
	lease    *lock.Lease
	told     sync.Once

	mu    sync.Mutex
	ended time.Time
}

func newTerm(run context.Context, lease *lock.Lease) *term {
	t := &term{run: run, work: lease.Context(), lease: lease}
	t.Context, t.cancel = context.WithCancelCause(t.work)
	t.unfollow = context.AfterFunc(run, func() { t.cancel(context.Cause(run)) })
	return t
}

// close frees what the term's contexts hold on to.
func (t *term) close() {
	t.unfollow()
	t.cancel(lock.ErrReleased)
}

// noteEnd returns when the term's ctx ended, as far as is known. It is called after that. A process that was stopped hears of it late, but
// knows until when it could have trusted the lease.
func (t *term) noteEnd() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended.IsZero() {
		t.ended = time.Now()
		if d := t.lease.Deadline(); d.Before(t.ended) {
			t.ended = d
		}
	}
	return t.ended
}

// Deadline implements context.Context.
func (t *term) Deadline() (time.Time, bool) { return t.run.Deadline() }

// Err implements context.Context.
func (t *term) Err() error {
	if err := t.Context.Err(); err != nil {
		return err
	}
	if t.run.Err() != nil {
		t.cancel(context.Cause(t.run))
	}
	_ = t.work.Err() // ends this one, too, if it has ended
	return t.Context.Err()
}

type termKey struct{}

// Value implements context.Context.
func (t *term) Value(key any) any {
	if key == (termKey{}) {
		return t.lease
	}
	return t.Context.Value(key)
}

// Lease returns the leader's lease, given the ctx of fn or one made from it; otherwise nil. With lock.WithHeartbeat fn has to call its
// Heartbeat. Its Release is a resignation.
func Lease(ctx context.Context) *lock.Lease {
	l, _ := ctx.Value(termKey{}).(*lock.Lease)
	return l
}

// Token returns the fencing token of the leader's term, given the ctx of fn or one made from it; otherwise 0. It is larger than those of
// all terms before, see [lock.Lease.Token]. What fn writes to should keep the largest it has seen, and refuse smaller ones.
func Token(ctx context.Context) int64 {
	if l := Lease(ctx); l != nil {
		return l.Token()
	}
	return 0
}

package leader

import (
	"context"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// term is one lease of the leader, and the ctx of fn. As a context, it is a child of the lease's Context, with these
// differences: it also ends with the ctx given to Run, it has the deadline of that ctx, and its Err is never late,
// because it calls Err of both contexts, and the one of the lease compares the clock.
type term struct {
	context.Context
	cancel   context.CancelCauseFunc
	unfollow func() bool
	run      context.Context // given to Run
	work     context.Context // the lease's
	lease    *lock.Lease
	told     sync.Once      // OnDeposed
	logging  sync.WaitGroup // the log of the end

	mu    sync.Mutex
	ended time.Time
}

func newTerm(run context.Context, lease *lock.Lease) *term {
	t := &term{run: run, work: lease.Context(), lease: lease}
	t.Context, t.cancel = context.WithCancelCause(t.work)
	t.unfollow = context.AfterFunc(run, func() { t.cancel(context.Cause(run)) })
	return t
}

// close releases the resources of the term's contexts.
func (t *term) close() {
	t.unfollow()
	t.cancel(lock.ErrReleased)
}

// noteEnd returns when the term ended. Call it only after the end; the first call fixes the result. A stopped process
// notices the end late, so the result is the lease's deadline if that is earlier.
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
	_ = t.work.Err() // if the lease has ended by the clock, this ends work and so t.Context
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

// Lease returns the leader's lease if ctx is fn's ctx or derived from it, otherwise nil. With lock.WithHeartbeat, fn
// must call its Heartbeat. To resign, call its Release. When fn then returns, Run handles the result as if the process
// still led.
func Lease(ctx context.Context) *lock.Lease {
	l, _ := ctx.Value(termKey{}).(*lock.Lease)
	return l
}

// Token returns the fencing token of the leader's term if ctx is fn's ctx or derived from it, otherwise 0. It is larger
// than the tokens of all earlier terms: see [lock.Lease.Token]. The system that fn writes to should store the largest
// token it has seen, and refuse smaller ones.
func Token(ctx context.Context) int64 {
	if l := Lease(ctx); l != nil {
		return l.Token()
	}
	return 0
}

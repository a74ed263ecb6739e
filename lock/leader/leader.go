package leader

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// Run campaigns for the lock m, and runs fn while this process leads. If the process is deposed, it campaigns again. It
// returns
//
//   - nil, or the error of [lock.Lease.Release], after fn has returned nil while the process led, or has resigned (see
//     [Lease]) and returned nil;
//   - after ctx has ended, its cause, joined with the errors of fn and of the release, if there are any;
//   - an error that matches lock.ErrClosed, lock.ErrInvalid or lock.ErrDeadlock, as from [lock.Mutex.Lock].
//
// The ctx of fn ends when the process no longer leads; context.Cause says why. It is a child of the lease's Context,
// and has the deadline and the values of the ctx given to Run.
func Run(ctx context.Context, m lock.Locker, fn func(ctx context.Context) error, opts ...Option) error {
	return New(m, opts...).Run(ctx, fn)
}

// Elector is one candidate in an election. Its methods may be called concurrently.
type Elector struct {
	lock    lock.Locker
	cfg     config
	running atomic.Bool
	term    atomic.Pointer[term] // nil unless fn is running
}

// New returns an Elector for the lock m. It does no I/O and never fails. An invalid option is reported by Run, as an
// error that matches lock.ErrInvalid.
func New(m lock.Locker, opts ...Option) *Elector {
	return &Elector{lock: m, cfg: newConfig(m, opts)}
}

// Run is the function Run on this Elector. During a Run, another call fails with an error that matches lock.ErrInvalid.
func (e *Elector) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	switch {
	case e.cfg.err != nil:
		return e.cfg.err
	case ctx == nil:
		return fmt.Errorf("%w: leader: ctx is nil", lock.ErrInvalid)
	case fn == nil:
		return fmt.Errorf("%w: leader: Run needs a function to run", lock.ErrInvalid)
	case !e.running.CompareAndSwap(false, true):
		return fmt.Errorf("%w: leader: the Elector runs already; one Run is one candidate", lock.ErrInvalid)
	}
	defer e.running.Store(false)
	r := &run{Elector: e, ctx: ctx, fn: fn, look: make(chan struct{}, 1)}
	defer r.callbacks.wait()
	defer r.watch()()
	return r.loop()
}

// IsLeader reports whether this process leads: from its election until fn's ctx ends or fn returns. It compares the
// clock, and does no I/O.
func (e *Elector) IsLeader() bool {
	t := e.term.Load()
	return t != nil && t.Err() == nil
}

// Check is a health check for a liveness probe. It fails if fn's ctx ended more than tolerance ago and fn hasn't
// returned. Then fn may be running beside another leader, or blocking a successor, and a restart helps. Check returns
// nil in all other cases, even while Redis can't be reached: a restart doesn't help then.
func (e *Elector) Check(tolerance time.Duration) error {
	t := e.term.Load()
	if t == nil || t.Err() == nil {
		return nil
	}
	if late := time.Since(t.noteEnd()); late > tolerance {
		return fmt.Errorf("lockdog: leader %q: fn hasn't returned %v after the end of its ctx: %w",
			t.lease.Name(), late.Round(time.Millisecond), context.Cause(t))
	}
	return nil
}

// errUnwound is the cause for OnDeposed if fn ended without returning, and the process led until then.
var errUnwound = errors.New("lockdog: the leader's function panicked, or called runtime.Goexit")

// run is one call of Run.
type run struct {
	*Elector
	ctx       context.Context // given to Run
	fn        func(ctx context.Context) error
	backoff   backoff
	callbacks callbacks
	news      news
	look      chan struct{} // wakes the watcher after a term has ended
}

// loop alternates between campaigns and pauses until Run ends.
func (r *run) loop() error {
	for {
		again, err := r.next()
		if !again {
			return err
		}
		timer := time.NewTimer(r.backoff.next(&r.cfg))
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			timer.Stop()
			return context.Cause(r.ctx)
		}
	}
}

// next runs one campaign and, if it is won, the term. It reports whether to campaign again after a pause. Otherwise err
// is the result of Run.
//
// Lock gets a context that r.ctx cancels only during the wait. So the end of r.ctx ends the wait, but doesn't stop the
// renewal while fn winds down.
func (r *run) next() (again bool, err error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.ctx))
	defer cancel(nil)
	stop := context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
	lease, err := r.lock.Lock(ctx)
	stop()
	var held *lock.HeldError
	switch {
	case r.ctx.Err() != nil:
		if err == nil { // r.ctx ended just after the lock was acquired
			err = r.release(lease)
			return false, r.ended(nil, err)
		}
		return false, context.Cause(r.ctx)
	case err == nil:
		return r.lead(lease)
	case errors.Is(err, lock.ErrClosed), errors.Is(err, lock.ErrInvalid), errors.Is(err, lock.ErrDeadlock):
		return false, err
	case errors.As(err, &held): // the lock has WithWait
		r.tell(held.Owner, r.news.now())
		r.backoff.reset()
	default:
		if failed, log := r.backoff.failed(time.Now()); log {
			r.cfg.log().WarnContext(r.ctx, "lockdog: campaign for leadership failed; it goes on",
				"error", err.Error(), "failures", failed)
		}
	}
	return true, nil
}

// lead runs one term. Its results are those of next.
func (r *run) lead(lease *lock.Lease) (again bool, err error) {
	since := time.Now()
	t := newTerm(r.ctx, lease)
	defer t.close()
	r.term.Store(t)
	r.elected(t) // before AfterFunc, which may report the end at once
	defer context.AfterFunc(t, func() {
		if cause := context.Cause(t); r.deposed(t, cause) {
			r.logDeposed(t, cause)
		}
	})()

	led, ferr, rerr := r.work(t)
	cause := context.Cause(t)
	if !led && echoes(ferr, cause) {
		ferr = nil
	}
	switch {
	case led && ferr == nil:
		return false, rerr
	case r.ctx.Err() != nil:
		return false, r.ended(ferr, rerr)
	}
	if ferr != nil {
		r.cfg.log().WarnContext(r.ctx, "lockdog: the leader's function failed",
			"name", lease.Name(), "token", lease.Token(), "error", ferr)
	}
	if !led && errors.Is(cause, lock.ErrClosed) {
		return false, cause
	}
	r.backoff.termOf(time.Since(since), &r.cfg)
	return true, nil // without rerr: telemetry has it, and the lease ends in any case
}

// work logs the election, runs fn and then releases the lock, also if fn or a log handler panics. led reports whether
// the process led until fn returned or resigned.
func (r *run) work(t *term) (led bool, ferr, rerr error) {
	ferr = errUnwound
	defer func() {
		cause := ferr
		// ErrReleased: fn resigned by calling Release.
		if led = t.Err() == nil || errors.Is(context.Cause(t), lock.ErrReleased); !led {
			cause = context.Cause(t)
		}
		r.term.Store(nil)
		first := r.deposed(t, cause)
		rerr = r.release(t.lease)
		if first {
			r.logDeposed(t, cause) // last, because a log handler may block
		}
		t.logging.Wait()
	}()
	r.cfg.log().InfoContext(r.ctx, "lockdog: elected leader",
		"name", t.lease.Name(), "owner", t.lease.Owner(), "token", t.lease.Token())
	ferr = r.fn(t)
	return
}

// release releases the lock. It is no error if fn has done so already.
func (r *run) release(lease *lock.Lease) error {
	if err := lease.Release(r.ctx); !errors.Is(err, lock.ErrReleased) {
		return err
	}
	return nil
}

// ended returns the error of Run after ctx has ended.
func (r *run) ended(ferr, rerr error) error {
	cause := context.Cause(r.ctx)
	if ferr == nil && rerr == nil {
		return cause
	}
	return errors.Join(cause, ferr, rerr)
}

// echoes reports whether fn's error is nil, or only repeats that its ctx ended.
func echoes(err, cause error) bool {
	return err == nil || errors.Is(err, cause) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// elected reports to the callbacks that a term has begun.
func (r *run) elected(t *term) {
	token := t.lease.Token()
	r.news.turn(func() {
		if r.cfg.onElected != nil {
			r.callbacks.add(func() { r.cfg.onElected(token) })
		}
	})
	r.tell(t.lease.Owner(), r.news.now())
}

// deposed reports to OnDeposed that a term is over. Only the first call for a term does so, and returns true: then
// logDeposed must follow.
func (r *run) deposed(t *term, cause error) (first bool) {
	t.told.Do(func() {
		first = true
		t.logging.Add(1)
		t.noteEnd()
		r.news.turn(func() {
			if r.cfg.onDeposed != nil {
				r.callbacks.add(func() { r.cfg.onDeposed(cause) })
			}
		})
		select {
		case r.look <- struct{}{}:
		default:
		}
	})
	return first
}

// logDeposed logs that a term is over.
func (r *run) logDeposed(t *term, cause error) {
	defer t.logging.Done()
	args := []any{"name", t.lease.Name(), "owner", t.lease.Owner(), "token", t.lease.Token()}
	if cause != nil {
		args = append(args, "cause", cause)
	}
	r.cfg.log().InfoContext(r.ctx, "lockdog: no longer leader", args...)
}

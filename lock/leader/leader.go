package leader

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// Run campaigns for the lock m, runs fn while this process leads, and campaigns again when it was deposed. It returns
//
//   - nil, or what [lock.Lease.Release] said, after fn has returned nil while it led;
//   - the cause of ctx after that has ended, joined with fn's error, if that is another, and with the release's;
//   - an error that matches lock.ErrClosed, lock.ErrInvalid or lock.ErrDeadlock, as from [lock.Mutex.Lock].
//
// The ctx that fn gets ends when it leads no more; context.Cause says why. It is a child of the lease's Context, and has the deadline and the values
// of ctx.
func Run(ctx context.Context, m lock.Locker, fn func(ctx context.Context) error, opts ...Option) error {
	return New(m, opts...).Run(ctx, fn)
}

// Elector is a process's part in an election. Its methods may be called from any goroutine.
type Elector struct {
	lock    lock.Locker
	cfg     config
	running atomic.Bool
	term    atomic.Pointer[term] // the one whose fn hasn't returned
}

// New returns an Elector for the lock m. It does no I/O and never fails: what is wrong with the options is the error, matching
// lock.ErrInvalid, of Run.
func New(m lock.Locker, opts ...Option) *Elector {
	return &Elector{lock: m, cfg: newConfig(m, opts)}
}

// Run is the function Run. An Elector runs one at a time; another call meanwhile fails with an error that matches lock.ErrInvalid.
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

// IsLeader reports whether this process leads: from its election until the ctx of fn ends or fn returns. It looks at the clock, and asks nobody.
func (e *Elector) IsLeader() bool {
	t := e.term.Load()
	return t != nil && t.Err() == nil
}

// Check is a health check, for a liveness probe. It fails when this process has been deposed, or its ctx has ended, for longer than
// tolerance, and fn hasn't returned: then fn may work beside another leader, or keep another from leading, and a restart helps. It is nil in all
// other cases, also while Redis can't be reached, which a restart doesn't change.
func (e *Elector) Check(tolerance time.Duration) error {
	t := e.term.Load()
	if t == nil || t.Err() == nil {
		return nil
	}
	if late := time.Since(t.noteEnd()); late > tolerance {
		return fmt.Errorf("lockdog: leader %q: fn hasn't returned %v after the end of its ctx: %w", t.lease.Name(), late.Round(time.Millisecond), context.Cause(t))
	}
	return nil
}

// errUnwound is what OnDeposed is told when fn ended without returning.
var errUnwound = errors.New("lockdog: the leader's function panicked, or called runtime.Goexit")

// run is one call of Run.
type run struct {
	*Elector
	ctx       context.Context // given to Run
	fn        func(ctx context.Context) error
	backoff   backoff
	callbacks callbacks
	news      news
	look      chan struct{} // wakes the watcher when a term has ended
}

// loop campaigns and leads in turns.
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

// next is one campaign and the term that it wins. It reports whether to campaign again, after a pause; otherwise err is the end of Run.
//
// The lease follows a context of its own, so that the end of ctx ends the wait for the lock, but not the renewal while fn winds down.
func (r *run) next() (again bool, err error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.ctx))
	defer cancel(nil)
	stop := context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
	lease, err := r.lock.Lock(ctx)
	stop()
	var held *lock.HeldError
	switch {
	case r.ctx.Err() != nil:
		if err == nil { // elected at this very moment
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
			r.cfg.log().WarnContext(r.ctx, "lockdog: campaign for leadership failed; it goes on", "error", err.Error(), "failures", failed)
		}
	}
	return true, nil
}

// lead is a term. It reports what next does.
func (r *run) lead(lease *lock.Lease) (again bool, err error) {
	since := time.Now()
	t := newTerm(r.ctx, lease)
	defer t.close()
	r.term.Store(t)
	r.elected(t)
	defer context.AfterFunc(t, func() { r.deposed(t, context.Cause(t)) })()

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
		r.cfg.log().WarnContext(r.ctx, "lockdog: the leader's function failed", "name", lease.Name(), "token", lease.Token(), "error", ferr.Error())
	}
	if !led && errors.Is(cause, lock.ErrClosed) {
		return false, cause
	}
	r.backoff.termOf(time.Since(since), &r.cfg)
	return true, nil // telemetry has the error of the release; the lease ends in any case
}

// work runs fn, and resigns. It reports whether this process led until then; and resigns, too, when fn panics.
func (r *run) work(t *term) (led bool, ferr, rerr error) {
	ferr = errUnwound
	defer func() {
		cause := ferr
		if led = t.Err() == nil || errors.Is(context.Cause(t), lock.ErrReleased); !led { // fn may resign by Release
			cause = context.Cause(t)
		}
		r.term.Store(nil)
		r.deposed(t, cause)
		rerr = r.release(t.lease)
	}()
	ferr = r.fn(t)
	return
}

// release gives the lock back. That fn did so is no error.
func (r *run) release(lease *lock.Lease) error {
	if err := lease.Release(r.ctx); !errors.Is(err, lock.ErrReleased) {
		return err
	}
	return nil
}

// ended is what Run returns when ctx has ended.
func (r *run) ended(ferr, rerr error) error {
	cause := context.Cause(r.ctx)
	if ferr == nil && rerr == nil {
		return cause
	}
	return errors.Join(cause, ferr, rerr)
}

// echoes reports whether fn's error says no more than that its ctx ended.
func echoes(err, cause error) bool {
	return err == nil || errors.Is(err, cause) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// elected tells that a term has begun.
func (r *run) elected(t *term) {
	r.cfg.log().InfoContext(r.ctx, "lockdog: elected leader", "name", t.lease.Name(), "owner", t.lease.Owner(), "token", t.lease.Token())
	token := t.lease.Token()
	r.news.turn(func() {
		if r.cfg.onElected != nil {
			r.callbacks.add(func() { r.cfg.onElected(token) })
		}
	})
	r.tell(t.lease.Owner(), r.news.now())
}

// deposed tells that a term is over, and why, once.
func (r *run) deposed(t *term, cause error) {
	t.told.Do(func() {
		t.noteEnd()
		args := []any{"name", t.lease.Name(), "owner", t.lease.Owner(), "token", t.lease.Token()}
		if cause != nil {
			args = append(args, "cause", cause.Error())
		}
		r.cfg.log().InfoContext(r.ctx, "lockdog: no longer leader", args...)
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
}

package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	errNoWork = fmt.Errorf("%w: Do(ctx, nil): it needs a function to run", ErrInvalid)
	errNoLock = fmt.Errorf("%w: Do(ctx, nil, fn): it needs a lock to run it under", ErrInvalid)
)

// Do runs fn under a lock, with the lease's Context, and releases the lock. It returns fn's result and error. If the
// lock can't be taken, it returns the error of Lock and doesn't call fn. If fn panics, the panic continues after the
// release.
//
// If the lease was lost, the error matches ErrLost, also when fn returned nil: another holder may have worked at the
// same time, and only tokens protect from that. If fn returned nil and Redis didn't confirm the release, it matches
// ErrUnconfirmed: the work is done, don't repeat it. If both fn and the release failed, their errors are joined. If fn
// calls Release itself, Do doesn't return the error of that call.
//
// The release takes as long as [Lease.Release] with ctx: at most until ctx ends or, if ctx has ended before, for the
// rest of the lease.
func Do[T any](ctx context.Context, l Locker, fn func(context.Context, *Lease) (T, error)) (T, error) {
	return run(ctx, l, Locker.Lock, fn)
}

// TryDo is Do if TryLock can take the lock. If not, TryDo doesn't wait: it returns the error of TryLock, such as a
// *HeldError, and doesn't call fn.
func TryDo[T any](ctx context.Context, l Locker, fn func(context.Context, *Lease) (T, error)) (T, error) {
	return run(ctx, l, Locker.TryLock, fn)
}

func run[T any](
	ctx context.Context, l Locker, acquire func(Locker, context.Context) (*Lease, error),
	fn func(context.Context, *Lease) (T, error),
) (result T, err error) {
	switch {
	case fn == nil:
		return result, errNoWork
	case l == nil:
		return result, errNoLock
	}
	lease, err := acquire(l, ctx)
	if err != nil {
		return result, err
	}
	defer func() {
		returned := time.Now()
		rerr := lease.Release(ctx)
		switch {
		case rerr == nil, errors.Is(rerr, ErrReleased): // fn may have released it
		case errors.Is(rerr, ErrClosed) && !returned.Before(lease.Deadline()): // Close gave it up, and it ran out since
			err = errors.Join(err, rerr, ErrLost)
		case errors.Is(err, rerr): // fn returned the cause of its ctx, which is this error
		case err == nil && !errors.Is(rerr, ErrLost):
			err = &unconfirmedError{rerr}
		default:
			err = errors.Join(err, rerr)
		}
	}()
	return fn(lease.Context(), lease)
}

// method implements the methods Do and TryDo of each kind of lock.
func method(
	ctx context.Context, l Locker, acquire func(Locker, context.Context) (*Lease, error),
	fn func(context.Context, *Lease) error,
) error {
	if fn == nil {
		return errNoWork
	}
	_, err := run(ctx, l, acquire, func(ctx context.Context, l *Lease) (struct{}, error) {
		return struct{}{}, fn(ctx, l)
	})
	return err
}

// do implements the method Do of each kind of lock, tryDo the method TryDo.
func do(ctx context.Context, l Locker, fn func(context.Context, *Lease) error) error {
	return method(ctx, l, Locker.Lock, fn)
}

func tryDo(ctx context.Context, l Locker, fn func(context.Context, *Lease) error) error {
	return method(ctx, l, Locker.TryLock, fn)
}

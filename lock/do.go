package lock

import (
	"context"
	"errors"
	"fmt"
)

var (
	errNoWork = fmt.Errorf("%w: Do(ctx, nil): it needs a function to run", ErrInvalid)
	errNoLock = fmt.Errorf("%w: Do(ctx, nil, fn): it needs a lock to run it under", ErrInvalid)
)

// Do runs fn under a lock, with the lease's Context, and releases it. It returns fn's result and error. When the
// lease was lost, or couldn't be released, that error is joined to fn's, also when fn returned nil: then
// what fn did may have happened beside another holder, and only tokens protect from that. A panic of fn goes on after the
// release. That takes as long as [Lease.Release] with ctx: until ctx ends, or, where it has ended before, what is left of the lease at most.
func Do[T any](ctx context.Context, l Locker, fn func(context.Context, *Lease) (T, error)) (result T, err error) {
	switch {
	case fn == nil:
		return result, errNoWork
	case l == nil:
		return result, errNoLock
	}
	lease, err := l.Lock(ctx)
	if err != nil {
		return result, err
	}
	defer func() {
		// fn may have released it; that is no error. Nor need it be said twice how the lease was lost, if fn returned the cause
		// of its ctx.
		if rerr := lease.Release(ctx); rerr != nil && !errors.Is(rerr, ErrReleased) && !errors.Is(err, rerr) {
			err = errors.Join(err, rerr)
		}
	}()
	return fn(lease.Context(), lease)
}

// do is the method Do of a kind of lock.
func do(ctx context.Context, l Locker, fn func(context.Context, *Lease) error) error {
	if fn == nil {
		return errNoWork
	}
	_, err := Do(ctx, l, func(ctx context.Context, l *Lease) (struct{}, error) {
		return struct{}{}, fn(ctx, l)
	})
	return err
}

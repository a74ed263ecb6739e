package lock

import (
	"context"
	"errors"
)

// Do runs fn under a lock, with the lease's Context, and releases it. It returns fn's result and error. When the
// lease was lost, or couldn't be released, that error is joined to fn's, also when fn returned nil: then
// what fn did may have happened beside another holder, and only tokens protect from that. A panic of fn goes on after the
// release.
func Do[T any](ctx context.Context, l Locker, fn func(context.Context, *Lease) (T, error)) (result T, err error) {
	lease, err := l.Lock(ctx)
	if err != nil {
		return result, err
	}
	defer func() {
		// fn may have released it; that is no error. Nor need it be said twice how the lease was lost, if fn returned the cause
		// of its ctx. A dead ctx must not keep the lock.
		if rerr := lease.Release(context.WithoutCancel(ctx)); rerr != nil && !errors.Is(rerr, ErrReleased) && !errors.Is(err, rerr) {
			err = errors.Join(err, rerr)
		}
	}()
	return fn(lease.Context(), lease)
}

// do is the method Do of a kind of lock.
func do(ctx context.Context, l Locker, fn func(context.Context, *Lease) error) error {
	_, err := Do(ctx, l, func(ctx context.Context, l *Lease) (struct{}, error) {
		return struct{}{}, fn(ctx, l)
	})
	return err
}

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// What the error of Do means, asked in this order: an error may match several of these.
func Example_errors() {
	meaning := func(err error) string {
		switch {
		case err == nil:
			return "done"
		case errors.Is(err, lock.ErrUnconfirmed): // the lock is free one lease later
			return "done"
		case errors.Is(err, lock.ErrLost):
			return "perhaps done, and perhaps beside another holder"
		case errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrClosed):
			return "not done: try again later"
		case errors.Is(err, lock.ErrHeld):
			return "not done: somebody else is at it"
		default: // ErrInvalid and ErrDeadlock are mistakes in the program, others are errors of the work
			return "failed"
		}
	}
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	try := func() {
		err := srv.Client().Mutex("order:42").TryDo(context.Background(), func(context.Context, *lock.Lease) error { return nil })
		fmt.Println(meaning(err))
	}
	try()
	release := srv.Hold("order:42", "another process")
	try()
	release()
	srv.FailAcquires(locktest.ReplyError("LOADING Redis is loading the dataset in memory"))
	try()

	// Output:
	// done
	// not done: somebody else is at it
	// not done: try again later
}

// The error says who holds the lock, and for how long if the holder dies now. A handler can answer 409 with that.
func ExampleHeldError() {
	srv := locktest.New(nil) // in memory; a program has lock.New(rdb)
	defer srv.Close()
	defer srv.Hold("order:42", "another process")()

	_, err := srv.Client().Mutex("order:42").TryLock(context.Background())
	var held *lock.HeldError
	if errors.As(err, &held) {
		fmt.Println(held.Name, "is held by", held.Owner)
		fmt.Println("for one lease at most:", 0 < held.Remaining && held.Remaining <= lock.DefaultLease)
	}

	// Output:
	// order:42 is held by another process
	// for one lease at most: true
}

// An operator takes the lock away. Do says so, also if the work didn't notice: it may have been done beside another holder's.
func ExampleLostError() {
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	operator := srv.NewClient()

	err := srv.Client().Mutex("import:nightly").Do(context.Background(), func(ctx context.Context, _ *lock.Lease) error {
		if _, err := operator.Mutex("import:nightly").ForceUnlock(context.Background()); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	var lost *lock.LostError
	switch {
	case errors.As(err, &lost) && lost.Cause == lock.CauseForced:
		fmt.Println("somebody wants it to stop:", lost.Name, lost.ForcedBy() != "")
	case errors.As(err, &lost):
		fmt.Println("begin again:", lost.Cause)
	}

	// Output:
	// somebody wants it to stop: import:nightly true
}

// The program is told to stop while it works. The lock is ours yet, for what is left of the lease: time to save what is done.
func ExampleCanceledError() {
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	ctx, stop := context.WithCancel(context.Background()) // of signal.NotifyContext, in a program

	err := srv.Client().Mutex("import:nightly").Do(ctx, func(ctx context.Context, l *lock.Lease) error {
		stop() // SIGTERM
		<-ctx.Done()
		var canceled *lock.CanceledError
		if errors.As(context.Cause(ctx), &canceled) && l.Err() == nil {
			fmt.Println("saving what is done; reason:", canceled.Reason) // others are closed, max_hold and heartbeat
		}
		return context.Cause(ctx)
	})
	fmt.Println(errors.Is(err, context.Canceled), errors.Is(err, lock.ErrLost))

	// Output:
	// saving what is done; reason: context
	// true false
}

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// Any number of readers, or one writer.
func ExampleRWMutex() {
	srv := locktest.New(nil) // in memory; a program has lock.New(rdb)
	defer srv.Close()
	ctx := context.Background()
	here, there := srv.Client().RWMutex("catalog"), srv.NewClient().RWMutex("catalog") // as in two processes

	err := here.RDo(ctx, func(ctx context.Context, _ *lock.Lease) error {
		return there.RDo(ctx, func(ctx context.Context, _ *lock.Lease) error {
			h, err := here.Inspect(ctx)
			fmt.Println("held to", h.Mode, "by", h.Readers)
			return err
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	err = here.Do(ctx, func(ctx context.Context, l *lock.Lease) error {
		_, err := there.TryRLock(ctx)
		var held *lock.HeldError
		fmt.Println("the writer is alone:", errors.As(err, &held) && held.Owner == l.Owner())
		return nil
	})
	fmt.Println(err)

	// Output:
	// held to read by 2
	// the writer is alone: true
	// <nil>
}

// A writer reads on what it has written, with other readers, and nobody has written in between.
func ExampleRWMutex_RLock() {
	srv := locktest.New(nil)
	defer srv.Close()
	ctx := context.Background()
	catalog := srv.Client().RWMutex("catalog")

	write, err := catalog.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	read, err := catalog.RLock(write.Context()) // at once: it is within the write lease
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(write.Release(ctx))
	fmt.Println("still reading:", read.Context().Err() == nil)

	_, err = catalog.Lock(read.Context()) // it would wait for itself
	fmt.Println("no way back:", errors.Is(err, lock.ErrDeadlock))
	fmt.Println(read.Release(ctx))

	// Output:
	// <nil>
	// still reading: true
	// no way back: true
	// <nil>
}

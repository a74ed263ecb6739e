package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// At most three workers, in however many processes, use a service at one time. The permit of one that dies is free again
// after its lease.
func ExampleSemaphore() {
	srv := locktest.New(nil) // in memory; a program has lock.New(rdb)
	defer srv.Close()
	locks, ctx := srv.Client(), context.Background()

	service := locks.Semaphore("service:geo")
	if err := service.EnsurePermits(ctx, 3); err != nil { // every process does it at its start
		log.Fatal(err)
	}
	var work sync.WaitGroup
	for range 10 {
		work.Go(func() {
			err := service.Do(ctx, func(ctx context.Context, l *lock.Lease) error {
				return ctx.Err() // use the service
			})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	work.Wait()
	left, err := service.Available(ctx)
	fmt.Println(left, err)

	// Output:
	// 3 <nil>
}

// Bare permits have no owner: what one process takes another may give. Here they are rooms that are booked and cleaned.
func ExampleUnleasedSemaphore() {
	srv := locktest.New(nil) // in memory; a program has lock.New(rdb)
	defer srv.Close()
	locks, ctx := srv.Client(), context.Background()

	rooms := locks.UnleasedSemaphore("rooms:free")
	if _, err := rooms.TrySetPermits(ctx, 5); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a group of four:", rooms.Acquire(ctx, 4))
	err := rooms.TryAcquire(ctx, 2)
	fmt.Println("a group of two has to wait:", errors.Is(err, lock.ErrHeld))
	fmt.Println("cleaned:", rooms.Release(ctx, 1)) // by who cleans
	fmt.Println("a group of two:", rooms.TryAcquire(ctx, 2))

	// Output:
	// a group of four: <nil>
	// a group of two has to wait: true
	// cleaned: <nil>
	// a group of two: <nil>
}

// A report is made when all parts of it are there.
func ExampleLatch() {
	srv := locktest.New(nil) // in memory; a program has lock.New(rdb)
	defer srv.Close()
	locks, ctx := srv.Client(), context.Background()

	const parts = 3
	ready := locks.Latch("report:2026-11")
	if _, err := ready.TrySetCount(ctx, parts); err != nil {
		log.Fatal(err)
	}
	for range parts {
		go func() { // in other processes, say
			if err := ready.CountDown(ctx); err != nil {
				log.Print(err)
			}
		}()
	}
	if err := ready.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("all parts are there")

	// Output:
	// all parts are there
}

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// The options of New are for all locks of the client, unless a lock has its own. What isn't allowed is ErrInvalid.
func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	locks, err := lock.New(rdb, // it doesn't connect yet
		lock.WithClientID("orders-7d4f9"), // in Redis, logs and spans
		lock.WithLease(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	report := locks.Mutex("report", lock.WithLease(time.Millisecond))
	_, err = report.TryLock(context.Background()) // the first use says what is wrong
	fmt.Println(errors.Is(err, lock.ErrInvalid), err)
	fmt.Println(locks.Close(context.Background()), rdb.Close())

	// Output:
	// true lockdog: invalid: lock "report": lease 1ms: 100ms to 8760h0m0s are allowed
	// <nil> <nil>
}

// A program closes its client when it ends. Close tells holders to stop, and waits for them.
func ExampleClient_Close() {
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	ctx, locks := context.Background(), srv.Client()
	lease, err := locks.Mutex("import:nightly").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	go func() { // the work
		<-lease.Context().Done()
		fmt.Println("saving, as it is closed:", errors.Is(context.Cause(lease.Context()), lock.ErrClosed))
		if err := lease.Release(ctx); err != nil {
			log.Print(err)
		}
	}()

	end, cancel := context.WithTimeout(ctx, 20*time.Second) // Redis frees later what isn't released by then
	defer cancel()
	fmt.Println("closed:", locks.Close(end)) // and then rdb.Close()
	_, err = locks.Mutex("order:42").TryLock(ctx)
	fmt.Println("no new locks:", errors.Is(err, lock.ErrClosed))

	// Output:
	// saving, as it is closed: true
	// closed: <nil>
	// no new locks: true
}

// What a program holds and waits for now, and how its last leases ended. Package lockdebug has a page of it.
func ExampleClient_Leases() {
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	locks := srv.Client()
	ctx, stop := context.WithCancel(context.Background())

	err := locks.Mutex("order:42").Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
		for _, l := range locks.Leases() {
			fmt.Println(l.Kind, l.Name, l.State)
		}
		stop()
		<-ctx.Done()
		return nil
	})
	fmt.Println(err, len(locks.Leases()))
	for _, l := range locks.Recent() {
		fmt.Println(l.Kind, l.Name, l.End+":", l.Why)
	}

	// Output:
	// mutex order:42 held
	// <nil> 0
	// mutex order:42 canceled: context
}

// Release works also if the lease's ctx has ended. Give it one that bounds how long it tries while Redis doesn't answer.
func ExampleLease_Release() {
	srv := locktest.New(nil)
	defer srv.Close()
	request, cancel := context.WithCancel(context.Background())
	lease, err := srv.Client().Mutex("order:42").Lock(request)
	if err != nil {
		log.Fatal(err)
	}
	cancel() // who asked for the work has left

	end, cancel := context.WithTimeout(context.WithoutCancel(request), 2*time.Second)
	defer cancel()
	switch err := lease.Release(end); {
	case errors.Is(err, lock.ErrLost):
		fmt.Println("it wasn't ours any more:", err)
	case err != nil:
		fmt.Println("free one lease later at the latest:", err)
	}
	<-lease.Ended() // for who watches a lease without working under it
	fmt.Println(lease.Err())

	// Output:
	// lockdog: lease has been released
}

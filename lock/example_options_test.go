package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// Lock gives up after a while. A deadline of ctx would do so, too, but it would also end the work under the lock.
func ExampleWithWait() {
	srv := locktest.New(nil) // in memory; a program has lock.New(rdb)
	defer srv.Close()
	order := srv.Client().Mutex("order:42", lock.WithWait(50*time.Millisecond))
	ship := func(ctx context.Context, _ *lock.Lease) error {
		_, bounded := ctx.Deadline()
		fmt.Println("shipping; with a deadline:", bounded)
		return nil
	}

	release := srv.Hold("order:42", "another process")
	err := order.Do(context.Background(), ship)
	fmt.Println("gave up:", errors.Is(err, lock.ErrHeld))
	release()
	fmt.Println(order.Do(context.Background(), ship))

	// Output:
	// gave up: true
	// shipping; with a deadline: false
	// <nil>
}

// A request waits for the lock, for 5 s at most. The work goes on when the request is over, until the program ends.
func ExampleWithLifetime() {
	srv := locktest.New(nil)
	defer srv.Close()
	errShutdown := errors.New("shutting down")
	program, shutDown := context.WithCancelCause(context.Background())
	request, done := context.WithTimeout(program, 5*time.Second)

	lease, err := srv.Client().Mutex("export:7", lock.WithLifetime(program)).Lock(request)
	if err != nil {
		log.Fatal(err)
	}
	done()
	fmt.Println("still exporting:", lease.Context().Err() == nil)
	shutDown(errShutdown)
	<-lease.Context().Done()
	fmt.Println("stopped by the program's end:", errors.Is(context.Cause(lease.Context()), errShutdown))
	fmt.Println(lease.Release(program))

	// Output:
	// still exporting: true
	// stopped by the program's end: true
	// <nil>
}

// A function takes the lock whether its caller has it or not: the ctx says so.
func ExampleWithReentrancy() {
	srv := locktest.New(nil)
	defer srv.Close()
	locks := srv.Client()
	nothing := func(context.Context, *lock.Lease) error { return nil }

	stock := locks.Mutex("stock:7", lock.WithReentrancy())
	err := stock.Do(context.Background(), func(ctx context.Context, _ *lock.Lease) error {
		fmt.Println("joined:", stock.Do(ctx, nothing))
		err := srv.NewClient().Mutex("stock:7").TryDo(ctx, nothing)
		fmt.Println("still ours:", errors.Is(err, lock.ErrHeld))
		return locks.Mutex("stock:7").Do(ctx, nothing) // without the option it would wait for itself
	})
	fmt.Println("a mistake:", errors.Is(err, lock.ErrDeadlock))

	// Output:
	// joined: <nil>
	// still ours: true
	// a mistake: true
}

// Two programs share a Redis, and have a lock of the same name each.
func ExampleWithKeyPrefix() {
	srv := locktest.New(nil)
	defer srv.Close()
	billing := srv.NewClient(lock.WithKeyPrefix("billing:"))
	shipping := srv.NewClient(lock.WithKeyPrefix("shipping:"))

	err := billing.Mutex("daily").Do(context.Background(), func(ctx context.Context, _ *lock.Lease) error {
		return shipping.Mutex("daily").TryDo(ctx, func(_ context.Context, l *lock.Lease) error {
			fmt.Println("both have", l.Name()) // in Redis this one is shipping:daily
			return nil
		})
	})
	fmt.Println(err)

	// Output:
	// both have daily
	// <nil>
}

// The lock is granted when a replica has it, too. This Redis has none.
func ExampleWithReplicas() {
	srv := locktest.New(nil)
	defer srv.Close()
	ctx := context.Background()
	order := srv.Client().Mutex("order:42", lock.WithReplicas(1, 100*time.Millisecond))

	_, err := order.TryLock(ctx)
	var few *lock.ReplicasError
	if errors.As(err, &few) { // it matches ErrUnavailable: try again later
		fmt.Printf("%s: %d of %d replicas\n", few.Name, few.Acked, few.Wanted)
	}
	h, err := order.Inspect(ctx)
	fmt.Println("held:", h.Held, err)

	// Output:
	// order:42: 0 of 1 replicas
	// held: false <nil>
}

// Two transfers lock the same accounts in opposite order. One of them fails, so that the other one can go on. (A Multi has no such trouble.)
func ExampleWithDeadlockBreaking() {
	srv := locktest.New(nil, lock.WithDeadlockBreaking(), lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	var begun sync.WaitGroup
	begun.Add(2)
	transfer := func(locks *lock.Client, from, to string) error {
		return locks.Mutex(from).Do(context.Background(), func(ctx context.Context, _ *lock.Lease) error {
			begun.Done()
			begun.Wait() // each has one account
			// This ctx carries the first lease.
			return locks.Mutex(to).Do(ctx, func(context.Context, *lock.Lease) error { return nil })
		})
	}
	other := make(chan error)
	go func() { other <- transfer(srv.Client(), "account:3", "account:7") }()
	mine := transfer(srv.NewClient(), "account:7", "account:3") // as in another process
	theirs := <-other

	fmt.Println("one is done:", (mine == nil) != (theirs == nil))
	var deadlock *lock.DeadlockError
	if errors.As(errors.Join(mine, theirs), &deadlock) {
		fmt.Println("one has to be repeated, as it was in a deadlock of", len(deadlock.Cycle))
	}

	// Output:
	// one is done: true
	// one has to be repeated, as it was in a deadlock of 2
}

// The lease is renewed for as long as its holder lives. If it dies, others wait for 10 s at most, and not for the 30 s of DefaultLease.
func ExampleWithLease() {
	srv := locktest.New(nil)
	defer srv.Close()

	job := srv.Client().Mutex("import:nightly", lock.WithLease(10*time.Second))
	err := job.Do(context.Background(), func(ctx context.Context, l *lock.Lease) error {
		h, err := job.Inspect(ctx)
		fmt.Println("at most 10 s:", h.Remaining <= 10*time.Second, err)
		granted := l.Deadline()
		for ctx.Err() == nil && l.Deadline().Equal(granted) {
			time.Sleep(10 * time.Millisecond) // a step of the work
		}
		fmt.Println("renewed:", l.Deadline().After(granted))
		return context.Cause(ctx)
	})
	fmt.Println(err)

	// Output:
	// at most 10 s: true <nil>
	// renewed: true
	// <nil>
}

// Nobody renews this lease: the work has to be done before it ends.
func ExampleWithFixedLease() {
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	order := srv.Client().Mutex("order:42", lock.WithFixedLease(200*time.Millisecond))

	err := order.Do(context.Background(), func(ctx context.Context, l *lock.Lease) error {
		if time.Until(l.Deadline()) < time.Minute {
			fmt.Println("no time for a step of a minute")
		}
		<-ctx.Done() // the work takes too long
		return nil
	})
	fmt.Println(err)

	// Output:
	// no time for a step of a minute
	// lockdog: lease of lock "order:42" lost: expired
}

// The process lives, but its work hangs, or takes too long. It is told to stop, and the lock is free one lease later at the latest.
func ExampleWithHeartbeat() {
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	read := func(ctx context.Context, page int) error {
		if page == 3 {
			<-ctx.Done() // it hangs
		}
		return context.Cause(ctx)
	}

	job := srv.Client().Mutex("import:nightly", lock.WithLease(10*time.Second),
		lock.WithHeartbeat(4*time.Second), // the longest page
		lock.WithMaxHold(time.Hour))       // the longest run
	err := job.Do(context.Background(), func(ctx context.Context, l *lock.Lease) error {
		for page := 1; ; page++ {
			if err := read(ctx, page); err != nil {
				return fmt.Errorf("page %d: %w", page, err)
			}
			l.Heartbeat() // this page is done; the next one has 4 s
		}
	})
	fmt.Println(err)

	// Output:
	// page 3: lockdog: lease of lock "import:nightly" canceled: no Heartbeat for WithHeartbeat(4s)
}

// Two instances start a job at about the same time. It is done once, also if it is over before the second one asks.
func ExampleWithMinHold() {
	srv := locktest.New(nil)
	defer srv.Close()
	tick := func(locks *lock.Client) error {
		job := locks.Mutex("cron:hourly", lock.WithMinHold(time.Minute)) // clocks differ by less
		return job.TryDo(context.Background(), func(context.Context, *lock.Lease) error {
			fmt.Println("the job runs")
			return nil
		})
	}

	fmt.Println(tick(srv.Client()))
	err := tick(srv.NewClient()) // its clock is a bit behind
	fmt.Println("another instance has it:", errors.Is(err, lock.ErrHeld))

	// Output:
	// the job runs
	// <nil>
	// another instance has it: true
}

// Work can't always stop at once when its lease is lost. Others wait for a minute more, or until it says that it has stopped.
func ExampleWithTakeoverDelay() {
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	ctx, other := context.Background(), srv.NewClient().Mutex("tape", lock.WithWait(10*time.Second))

	lease, err := srv.Client().Mutex("tape", lock.WithFixedLease(200*time.Millisecond), lock.WithTakeoverDelay(time.Minute)).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	<-lease.Context().Done() // the lease has run out, and the tape still winds
	h, err := other.Inspect(ctx)
	fmt.Println("not free yet:", h.Remaining > 30*time.Second, err)
	err = lease.Release(ctx) // now it stands still
	fmt.Println("it was lost:", errors.Is(err, lock.ErrLost))
	fmt.Println("free:", other.Do(ctx, func(context.Context, *lock.Lease) error { return nil }))

	// Output:
	// not free yet: true <nil>
	// it was lost: true
	// free: <nil>
}

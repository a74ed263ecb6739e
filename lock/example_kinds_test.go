package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// inLine returns when Redis has told n callers of a client who holds the lock that they wait for.
func inLine(c *lock.Client, n int) {
	for told := 0; told < n; time.Sleep(time.Millisecond) {
		told = 0
		for _, l := range c.Leases() {
			if l.WaitsFor != "" {
				told++
			}
		}
	}
}

// Whoever asked first is served first, whatever its process.
func ExampleFairMutex() {
	srv := locktest.New(nil) // in memory; a program has lock.New(rdb)
	defer srv.Close()
	ctx := context.Background()

	first, err := srv.Client().FairMutex("press").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var work sync.WaitGroup
	one, other := srv.NewClient(), srv.NewClient() // as in two other processes
	line := func(c *lock.Client, n int, who string) {
		work.Go(func() {
			err := c.FairMutex("press").Do(ctx, func(context.Context, *lock.Lease) error {
				fmt.Println(who, "prints")
				return nil
			})
			if err != nil {
				log.Print(err)
			}
		})
		inLine(c, n)
	}
	line(one, 1, "north")
	line(one, 2, "east")
	line(other, 1, "south")
	if err := first.Release(ctx); err != nil {
		log.Fatal(err)
	}
	work.Wait()

	// Output:
	// north prints
	// east prints
	// south prints
}

// A transfer locks both accounts. Whoever transfers the other way waits, and there is no deadlock.
func ExampleMulti() {
	srv := locktest.New(nil)
	defer srv.Close()
	locks, ctx := srv.Client(), context.Background()

	err := locks.Multi([]string{"account:7", "account:3"}).Do(ctx, func(ctx context.Context, l *lock.Lease) error {
		_, err := locks.Mutex("account:3").TryLock(context.Background()) // somebody else, who wants one of them
		fmt.Println("account:3 is held:", errors.Is(err, lock.ErrHeld))
		tokens := l.Tokens() // each account checks its own
		fmt.Println("tokens for", len(tokens), "accounts:", tokens["account:3"] > 0 && tokens["account:7"] > 0)
		return nil
	})
	fmt.Println(err)

	// Output:
	// account:3 is held: true
	// tokens for 2 accounts: true
	// <nil>
}

// Three independent servers, of which one may be gone.
func ExampleNewQuorum() {
	var clients []*lock.Client
	for range 3 {
		srv := locktest.New(nil) // a program has lock.New(rdb) for each of three Redis
		defer srv.Close()
		clients = append(clients, srv.Client())
	}
	quorum, err := lock.NewQuorum(clients...)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := clients[0].Close(ctx); err != nil { // one can't be asked any more
		log.Fatal(err)
	}
	lease, err := quorum.Mutex("order:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range clients[1:] {
		h, err := c.Mutex("order:42").Inspect(ctx)
		fmt.Println(h.Held, err)
	}
	fmt.Println(lease.Release(ctx))

	// Output:
	// true <nil>
	// true <nil>
	// <nil>
}

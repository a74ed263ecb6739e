package lock_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// A store that checks tokens is safe also from a holder that doesn't know yet that it lost its lock. (The table is in
// example_test.go; a whole story is told by examples/fencing.)
func ExampleLease_Token() {
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	ctx := context.Background()
	here, there := srv.Client(), srv.NewClient() // as in two processes
	var orders table

	stale, err := here.Mutex("order:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := there.Mutex("order:42").ForceUnlock(ctx); err != nil { // or a failover that forgot the lock
		log.Fatal(err)
	}
	fresh, err := there.Mutex("order:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(orders.write(fresh.Token(), "shipped"))
	fmt.Println(orders.write(stale.Token(), "canceled")) // its Context wasn't looked at
	fmt.Println(fresh.Release(ctx))

	// Output:
	// written: shipped
	// <nil>
	// refused: a later holder has written
	// <nil>
}

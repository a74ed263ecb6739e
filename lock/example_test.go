package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// startRedis starts a server in this process, for an example that shows how to connect to one.
func startRedis() (addr string, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	return server.Addr(), server.Close
}

// One client per Redis, a Mutex for every name, and Do for everything that is done under a lock.
//
// The program of the README has this body; a test compares them.
func Example() {
	addr, stop := startRedis() // yours is at "localhost:6379"
	defer stop()

	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	locks, err := lock.New(rdb)
	if err != nil {
		log.Fatal(err)
	}
	err = locks.Mutex("order:42").Do(ctx, func(ctx context.Context, l *lock.Lease) error {
		fmt.Println("working on", l.Name()) // the lock is renewed until this function returns
		return context.Cause(ctx)           // ctx ends when the lock is lost: pass it to all calls
	})
	end, cancel := context.WithTimeout(ctx, 10*time.Second) // Close waits for holders until end ends
	err = errors.Join(err, locks.Close(end), rdb.Close())
	cancel()
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// working on order:42
}

// table is a store that is safe from holders that lost their lock and don't know yet: it refuses a write whose token is
// smaller than one it has seen. In SQL: UPDATE ... SET token = $1 WHERE id = $2 AND token <= $1.
type table struct{ token int64 }

func (t *table) write(token int64, text string) error {
	if token < t.token {
		return errors.New("refused: a later holder has written")
	}
	t.token = token
	fmt.Println("written:", text)
	return nil
}

// A lease that is held beyond one function. Its token goes with every write.
func ExampleMutex_Lock() {
	srv := locktest.New(nil) // in memory; a program has lock.New(rdb)
	defer srv.Close()
	locks, ctx := srv.Client(), context.Background()
	var orders table

	mutex := locks.Mutex("order:42")
	first, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(orders.write(first.Token(), "paid"))
	fmt.Println(first.Release(ctx))

	second, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(orders.write(second.Token(), "shipped"))
	fmt.Println(orders.write(first.Token(), "canceled")) // it comes late
	fmt.Println(second.Release(ctx))

	// Output:
	// written: paid
	// <nil>
	// <nil>
	// written: shipped
	// <nil>
	// refused: a later holder has written
	// <nil>
}

// TryLock asks once. The error says who holds the lock.
func ExampleMutex_TryLock() {
	srv := locktest.New(nil)
	defer srv.Close()
	ctx := context.Background()
	here, there := srv.Client(), srv.NewClient() // as in two processes

	lease, err := here.Mutex("report:daily").TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = there.Mutex("report:daily").TryLock(ctx)
	var held *lock.HeldError
	switch {
	case errors.As(err, &held):
		fmt.Println(held.Name, "is held by whom we think:", held.Owner == lease.Owner())
	case err != nil:
		fmt.Println("Redis is in trouble:", err)
	}
	fmt.Println(lease.Release(ctx))

	// Output:
	// report:daily is held by whom we think: true
	// <nil>
}

// Lease.Context ends with the lease, whatever ends it. Its cause says what did.
func ExampleLease_Context() {
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	ctx := context.Background()

	lease, err := srv.Client().Mutex("order:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	srv.Lose("order:42", lock.CauseMissing) // somebody deletes the key in Redis

	work := lease.Context() // what is done under the lock is done with this
	<-work.Done()
	var lost *lock.LostError
	if errors.As(context.Cause(work), &lost) {
		fmt.Println("stopped working: lost", lost.Name+", cause", lost.Cause)
	}
	fmt.Println("there is nothing to release:", errors.Is(lease.Release(ctx), lock.ErrLost))

	// Output:
	// stopped working: lost order:42, cause missing
	// there is nothing to release: true
}

// The function Do returns what is computed under the lock.
func ExampleDo() {
	srv := locktest.New(nil)
	defer srv.Close()

	stock := 3
	left, err := lock.Do(context.Background(), srv.Client().Mutex("stock:7"),
		func(_ context.Context, _ *lock.Lease) (int, error) {
			stock--
			return stock, nil
		})
	fmt.Println(left, err)

	// Output:
	// 2 <nil>
}

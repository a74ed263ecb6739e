package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// A lock that another process holds, and one that is lost. In a test give New the t; then Close is called for you.
func Example() {
	srv := locktest.New(nil)
	defer srv.Close()
	ctx := context.Background()

	release := srv.Hold("orders:42", "another process")
	orders := srv.Client().Mutex("orders:42")
	_, err := orders.TryLock(ctx)
	fmt.Println(errors.Is(err, lock.ErrHeld), err)
	release()

	lease, err := orders.TryLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	srv.Lose("orders:42", lock.CauseMissing)
	<-lease.Ended()
	fmt.Println(errors.Is(lease.Err(), lock.ErrLost), lease.Err())

	// Output:
	// true lockdog: lock "orders:42" is held by "another process", for 30s unless renewed
	// true lockdog: lease of lock "orders:42" lost: missing
}

// A handler answers 409 when somebody else has the lock, and 503 when Redis is away.
func ExampleServer_FailAcquires() {
	srv := locktest.New(nil)
	defer srv.Close()
	locks := srv.Client()
	handler := func(w http.ResponseWriter, r *http.Request) {
		lease, err := locks.Mutex("orders:42").TryLock(r.Context())
		switch {
		case errors.Is(err, lock.ErrHeld):
			http.Error(w, "somebody else is changing this order", http.StatusConflict)
			return
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		// ... change the order
		if err := lease.Release(r.Context()); err != nil { // the lock is free after one lease
			http.Error(w, "changed, but Redis did not confirm the release", http.StatusInternalServerError)
		}
	}
	status := func() int {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequest(http.MethodPost, "/orders/42", http.NoBody))
		return w.Code
	}

	fmt.Println(status())

	release := srv.Hold("orders:42", "another process")
	fmt.Println(status())
	release()

	srv.FailAcquires(io.EOF) // of a connection that breaks
	fmt.Println(status())
	srv.FailAcquires(nil)

	// Output:
	// 200
	// 409
	// 503
}

// The reply to a release is lost: the lock is free, but Do doesn't know.
func ExampleServer_FailReleases() {
	srv := locktest.New(nil, lock.WithWatchdog(time.Second)) // Do tries to release for one lease
	defer srv.Close()

	srv.FailReleases(locktest.ErrReplyLost)
	worked := false
	err := srv.Client().Mutex("imports:nightly").Do(context.Background(), func(context.Context, *lock.Lease) error {
		worked = true
		return nil
	})
	fmt.Println(worked, errors.Is(err, locktest.ErrReplyLost))

	// Output:
	// true true
}

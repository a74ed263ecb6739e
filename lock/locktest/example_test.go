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
	var held *lock.HeldError
	fmt.Println(errors.As(err, &held) && held.Owner == "another process")
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
	// true
	// true lockdog: lease of lock "orders:42" lost: missing
}

// A handler answers 409 when somebody else has the lock, 503 when Redis is away, and 200 when the work is done, also if the release isn't
// confirmed.
func ExampleServer_FailAcquires() {
	srv := locktest.New(nil, lock.WithLease(time.Second)) // a release that fails is tried for one lease
	defer srv.Close()
	locks := srv.Client()
	handler := func(w http.ResponseWriter, r *http.Request) {
		err := locks.Mutex("orders:42").TryDo(r.Context(), func(context.Context, *lock.Lease) error {
			return nil // ... change the order
		})
		switch {
		case err == nil, errors.Is(err, lock.ErrUnconfirmed): // which may match ErrUnavailable, too
			w.WriteHeader(http.StatusOK)
		case errors.Is(err, lock.ErrHeld):
			http.Error(w, "somebody else is changing this order", http.StatusConflict)
		case errors.Is(err, lock.ErrUnavailable):
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		default:
			http.Error(w, "the order can't be changed", http.StatusInternalServerError)
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
	srv.FailAcquires(locktest.ReplyError("NOPERM this user has no permissions to run the 'evalsha' command"))
	fmt.Println(status())
	srv.FailAcquires(nil)

	srv.FailReleases(io.EOF)
	fmt.Println(status())

	// Output:
	// 200
	// 409
	// 503
	// 500
	// 200
}

// The reply to a release is lost: the lock is free, but Do doesn't know.
func ExampleServer_FailReleases() {
	srv := locktest.New(nil)
	defer srv.Close()

	srv.FailReleases(locktest.ErrReplyLost)
	ctx, cancel := context.WithCancel(context.Background())
	worked := false
	err := srv.Client().Mutex("imports:nightly").Do(ctx, func(context.Context, *lock.Lease) error {
		worked = true
		time.AfterFunc(time.Second, cancel) // Do tries to release until then
		return nil
	})
	fmt.Println(worked, errors.Is(err, locktest.ErrReplyLost))

	// Output:
	// true true
}

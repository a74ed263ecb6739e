package locktest_test

import (
	"context"
	"errors"
	"fmt"

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
	<-lease.Done()
	fmt.Println(errors.Is(lease.Err(), lock.ErrLost), lease.Err())

	// Output:
	// true lockdog: lock "orders:42" is held by "another process", for 30s unless renewed
	// true lockdog: lease of lock "orders:42" lost: missing
}

package lock_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Thousands of quick locks leave nothing behind. In other libraries they multiplied the timers, and with them the
// renewals. Not parallel: it looks at goroutines and heap.
func TestChurnLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			cycles  = 2000
			growth  = cycles * 50 // bytes
			callers = 8
			lease   = 1500 * time.Millisecond
		)
		srv := redistest.StartFake(t)
		c := newScope(t).open(t, srv.Client(t), lock.WithTracerProvider(noop.NewTracerProvider())) // the exporter would keep every span
		churn := func(n int) {
			t.Helper()
			var wg sync.WaitGroup
			for g := range callers {
				wg.Go(func() {
					for i := range n / callers {
						l, err := c.Mutex(fmt.Sprintf("job:%d:%d", g, i%10)).Lock(t.Context())
						if err == nil {
							err = l.Release(t.Context())
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		}
		// The connections, the workers, and the thousand ended leases that a client remembers, are there after this.
		churn(1200)
		quiet(t)
		gs, heap := runtime.NumGoroutine(), liveHeap()
		churn(cycles)
		quiet(t)
		const workers = 8 // that stay idle: of slow calls there were more at one time, perhaps
		eventually(t, patience, func() bool { return runtime.NumGoroutine() <= gs+workers })
		after := liveHeap()
		t.Logf("the heap grew by %d bytes", int64(after)-int64(heap))
		if after > heap+growth {
			t.Errorf("the heap grew from %d to %d bytes in %d cycles", heap, after, cycles)
		}
		if left := c.Leases(); len(left) != 0 {
			t.Errorf("%d leases are left", len(left))
		}

		before := srv.Commands(t)
		l := try(t, c.Mutex("held", lock.WithLease(lease)))
		time.Sleep(2 * lease)
		free(t, l)
		if sent := srv.Commands(t).Since(before); sent["pexpireat"] < 2*3-1 || sent["pexpireat"] > 2*3 { // three in a lease, and one as it ends
			t.Errorf("one lock was renewed so often in two leases: %v", sent)
		}
	})
}

// quiet waits until what the last releases started has ended.
func quiet(t *testing.T) {
	t.Helper()
	n, since := runtime.NumGoroutine(), time.Now()
	eventually(t, patience, func() bool {
		if m := runtime.NumGoroutine(); m != n {
			n, since = m, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

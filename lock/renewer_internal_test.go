package lock

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/watchdog"
)

// Leases of several kinds and lengths that a batch has in any order are asked for kind by kind, and each is told its own result.
func TestRenewalOfMixedBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb := sp.Client(t)
		c := openFor(t, rdb, WithKeyPrefix(sp.Prefix()))
		const each = 3
		var lockers []Locker
		for i := range each {
			name := fmt.Sprint("job:", i)
			if _, err := c.Semaphore("permits:"+name).TrySetPermits(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			lockers = append(lockers, c.Mutex(name), c.RWMutex("rw:"+name), c.Mutex("longer:"+name, WithWatchdog(time.Hour)), c.Semaphore("permits:"+name))
		}
		b := &watchdog.Batch{Partition: c.dispatcher.Node("").Name, Results: make([]watchdog.Result, len(lockers)), Sent: time.Now()}
		var want []watchdog.Outcome
		for i, lk := range lockers {
			l, err := lk.TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Release(context.Background()) })
			g := l.target.(*grant)
			b.Leases = append(b.Leases, &g.wd)
			want = append(want, watchdog.Renewed)
			if i == 4 || i == 6 { // a mutex, and one with a longer lease
				want[i] = watchdog.Missing
				if err := rdb.Del(t.Context(), g.lock.key).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}

		all := c.renewer.leasesStillHere(b)
		if call := c.renewer.request(t.Context(), b, all); len(call.Args) != 1+4*3+2*len(lockers) {
			t.Errorf("%d arguments for %d leases of four sorts: %v", len(call.Args), len(lockers), call.Args)
		}
		if err := c.renewer.call(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		var got []watchdog.Outcome
		for _, r := range b.Results {
			got = append(got, r.Outcome)
		}
		if !slices.Equal(got, want) {
			t.Errorf("told %v, want %v: %+v", got, want, b.Results)
		}
	})
}

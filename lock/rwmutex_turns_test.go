package lock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// Read-write locks under load.

// turnsOf takes a lock again and again, on n goroutines, until ctx ends.
func turnsOf(ctx context.Context, t *testing.T, all *sync.WaitGroup, lk lock.Locker, n int, hold func(*lock.Lease)) {
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := lk.Lock(context.Background())
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				hold(l)
				if err := l.Release(context.Background()); err != nil {
					t.Errorf("Release: %v", err)
					return
				}
			}
		})
	}
}

// roomFor notes who is in, and says if a writer is in with anybody else.
type roomFor struct{ readers, writers atomic.Int64 }

func (r *roomFor) read(t *testing.T, d time.Duration) {
	r.readers.Add(1)
	pause(d)
	if n := r.writers.Load(); n > 0 {
		t.Errorf("%d writers are in with a reader", n)
	}
	r.readers.Add(-1)
}

func (r *roomFor) write(t *testing.T, d time.Duration) {
	writers := r.writers.Add(1)
	pause(d)
	if n := r.readers.Load(); n > 0 || writers > 1 {
		t.Errorf("%d writers and %d readers are in", writers, n)
	}
	r.writers.Add(-1)
}

// Readers that overlap without a gap don't starve a writer.
func TestRWReadersDontStarveWriters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var all sync.WaitGroup
		var room roomFor
		var reads atomic.Int64
		for range 3 {
			turnsOf(ctx, t, &all, r.client().RWMutex("job").RLocker(), 3, func(*lock.Lease) {
				reads.Add(1)
				room.read(t, 4*time.Millisecond)
			})
		}
		eventually(t, patience, func() bool { return reads.Load() > 50 })
		w := r.client().RWMutex("job")
		var longest time.Duration
		for range 5 {
			began := time.Now()
			l := granted(t, begin(r.ctx(), w))
			longest = max(longest, time.Since(began))
			room.write(t, time.Millisecond)
			free(t, l)
			before := reads.Load()
			eventually(t, patience, func() bool { return reads.Load() > before+5 })
		}
		stop()
		all.Wait()
		if longest > 50*time.Millisecond { // each read takes 4
			t.Errorf("a writer waited for %v", longest)
		}
	})
}

// Nor do writers without end starve readers.
func TestRWWritersDontStarveReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var all sync.WaitGroup
		var room roomFor
		var writes atomic.Int64
		for range 2 {
			turnsOf(ctx, t, &all, r.client().RWMutex("job"), 2, func(*lock.Lease) {
				writes.Add(1)
				room.write(t, time.Millisecond)
			})
		}
		eventually(t, patience, func() bool { return writes.Load() > 20 })
		readers := r.client().RWMutex("job").RLocker()
		var longest time.Duration
		for range 4 {
			began := time.Now()
			var five sync.WaitGroup
			for range 5 {
				five.Go(func() {
					if err := readers.Do(r.ctx(), func(context.Context, *lock.Lease) error { room.read(t, time.Millisecond); return nil }); err != nil {
						t.Errorf("Do: %v", err)
					}
				})
			}
			in := make(chan struct{})
			go func() {
				defer close(in)
				five.Wait()
			}()
			await(t, "five readers", in)
			longest = max(longest, time.Since(began))
		}
		stop()
		all.Wait()
		if longest > time.Second { // each write takes 1 ms
			t.Errorf("five readers waited for %v", longest)
		}
	})
}

// pause is for holds in a load.
func pause(d time.Duration) { <-time.After(d) }

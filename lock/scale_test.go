package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

const (
	crowd          = 10_000
	impatient      = 5                      // every so many-th waiter has little patience
	littlePatience = 200 * time.Millisecond // it is over before anybody releases
	perWaiter      = 24 << 10               // bytes, the stack of its goroutine included
)

// A crowd before one name: one subscription, memory in proportion, and each release wakes one waiter, by one command.
func TestCrowdBeforeOneName(t *testing.T) {
	srv, s, c := crowdRig(t)
	first := try(t, c.Mutex("one"))
	w := gather(t, c, func(int) string { return "one" })
	w.look(t, srv)
	before := scriptsSent(t, s)
	free(t, first)
	w.serve(t)
	perRelease(t, w, scriptsSent(t, s)-before, 1)
}

// A crowd of names with a waiter each, and holders in another client.
func TestCrowdOfNames(t *testing.T) {
	srv, s, c := crowdRig(t)
	other := s.open(t, srv.Client(t), lock.WithTracerProvider(noop.NewTracerProvider()))
	name := func(i int) string { return fmt.Sprintf("name:%d", i) }
	held := make([]*lock.Lease, crowd)
	each(64, func(i int) { held[i] = try(t, other.Mutex(name(i))) })
	try(t, c.Mutex("own")) // its control channel goes over the connection that its waiters have
	w := gather(t, c, name)
	w.look(t, srv, other)
	before := scriptsSent(t, s)
	each(64, func(i int) {
		if err := held[i].Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
	w.serve(t)
	perRelease(t, w, scriptsSent(t, s)-before, crowd)
}

func crowdRig(t *testing.T) (*redistest.Server, *scope, *lock.Client) {
	t.Helper()
	srv := redistest.Start(t)
	s := newScope(t)
	return srv, s, s.open(t, srv.Client(t), lock.WithTracerProvider(noop.NewTracerProvider())) // the exporter would keep every span
}

// each calls f for everyone of the crowd, on so many goroutines.
func each(goroutines int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < crowd; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}

// gathering is a crowd of waiters.
type gathering struct {
	all              sync.WaitGroup
	served, timedOut atomic.Int64
	mem              uint64 // before
	c                *lock.Client
}

// gather has the crowd wait, and the impatient among them leave.
func gather(t *testing.T, c *lock.Client, name func(i int) string) *gathering {
	t.Helper()
	w := &gathering{c: c, mem: heapAndStacks()}
	for i := range crowd {
		var opts []lock.LockOption
		hasty := i%impatient == 0
		if hasty {
			opts = append(opts, lock.WithWait(littlePatience))
		}
		m := c.Mutex(name(i), opts...)
		w.all.Go(func() {
			l, err := m.Lock(context.Background())
			switch {
			case err == nil && !hasty:
				w.served.Add(1)
				if err := l.Release(context.Background()); err != nil {
					t.Errorf("Release: %v", err)
				}
			case hasty && errors.Is(err, lock.ErrHeld):
				w.timedOut.Add(1)
			default:
				t.Errorf("Lock: %v, impatient: %v", err, hasty)
			}
		})
	}
	eventually(t, 2*patience, func() bool { return w.timedOut.Load() == crowd/impatient })
	return w
}

// look checks what the crowd costs while it waits.
func (w *gathering) look(t *testing.T, srv *redistest.Server, others ...*lock.Client) {
	t.Helper()
	const waiters = crowd - crowd/impatient
	waiting(t, w.c, waiters)
	each := (heapAndStacks() - w.mem) / waiters
	t.Logf("%d waiters: %d bytes each", waiters, each)
	if each > perWaiter {
		t.Errorf("%d bytes per waiter, want %d at most", each, perWaiter)
	}
	admin := srv.Client(t)
	asked, since := srv.Commands(t)["evalsha"], time.Now()
	eventually(t, 2*patience, func() bool { // until all subscriptions have come, and who waits has asked once more
		if n := srv.Commands(t)["evalsha"]; n != asked {
			asked, since = n, time.Now()
		}
		return time.Since(since) > 100*time.Millisecond
	})
	if n := subscriptions(t, admin); n != 1+len(others) {
		t.Errorf("%d connections listen, want one of each client", n)
	}
}

// subscriptions counts the connections that listen.
func subscriptions(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	list, err := rdb.Do(context.Background(), "client", "list", "type", "pubsub").Text()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(list, "\n")
}

// serve waits until everybody had the lock.
func (w *gathering) serve(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() { w.all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(4 * patience):
		t.Fatalf("%d served, %d timed out, of %d", w.served.Load(), w.timedOut.Load(), crowd)
	}
	if n := w.served.Load() + w.timedOut.Load(); n != crowd {
		t.Errorf("%d of %d were served, or timed out", n, crowd)
	}
}

// perRelease checks that releases cost the same however many wait.
func perRelease(t *testing.T, w *gathering, sent int, others int64) {
	t.Helper()
	releases := w.served.Load() + others
	each := float64(sent) / float64(releases)
	t.Logf("%d releases, %.2f commands each", releases, each)
	if each > 2 {
		t.Errorf("%.2f commands per release, want 2 at most", each)
	}
}

// scriptsSent counts what clients have sent for locks, renewals aside.
func scriptsSent(t *testing.T, s *scope) int {
	t.Helper()
	return s.sent(t, telemetry.PurposeAcquire) + s.sent(t, telemetry.PurposeRelease)
}

// heapAndStacks is what live objects and stacks take.
func heapAndStacks() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

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
	impatient      = 2                      // every so many-th waiter has little patience
	littlePatience = 200 * time.Millisecond // it is over before anybody releases
	crowdPatience  = 2 * patience           // a busy machine takes a minute for so many
)

// crowd is how many wait.
func crowd() int {
	if lock.Full {
		return 10_000
	}
	return 2_000
}

// A crowd before one name: one subscription, memory in proportion, and each release wakes one waiter, by one command.
func TestCrowdBeforeOneName(t *testing.T) {
	srv, s, c := crowdRig(t)
	first := try(t, c.Mutex("one"))
	w := gather(t, c, func(int) string { return "one" })
	w.look(t, srv, 32_000)
	before := scriptsSent(t, s)
	free(t, first)
	w.serve(t)
	perRelease(t, scriptsSent(t, s)-before, 1+w.served.Load(), 1.2) // one, but for those that are published, in fairness to other processes
}

// A crowd of names with a waiter each. Who holds them is another program, whose locks look like Redisson's.
func TestCrowdOfNames(t *testing.T) {
	srv, s, c := crowdRig(t)
	rdb := srv.Client(t)
	name := func(i int) string { return fmt.Sprintf("name:%d", i) }
	pipelined(t, rdb, func(pipe redis.Pipeliner, i int) {
		pipe.HSet(t.Context(), name(i), somebodyElse, 1)
		pipe.PExpire(t.Context(), name(i), time.Hour)
	})
	try(t, c.Mutex("own")) // its control channel goes over the connection that the waiters have
	w := gather(t, c, name)
	w.look(t, srv, 50_000) // 28,000 to 32,000 as a rule, by how many stacks the runtime keeps
	before := scriptsSent(t, s)
	pipelined(t, rdb, func(pipe redis.Pipeliner, i int) {
		pipe.Del(t.Context(), name(i))
		pipe.Publish(t.Context(), "redisson_lock__channel:{"+name(i)+"}", "0")
	})
	w.serve(t)
	perRelease(t, scriptsSent(t, s)-before, w.served.Load(), 2.1) // by which a waiter takes the lock, and gives it back
}

// pipelined sends commands for everyone of the crowd.
func pipelined(t *testing.T, rdb *redis.Client, add func(pipe redis.Pipeliner, i int)) {
	t.Helper()
	pipe := rdb.Pipeline()
	for i := range crowd() {
		add(pipe, i)
		if pipe.Len() >= 1000 || i == crowd()-1 {
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func crowdRig(t *testing.T) (*redistest.Server, *scope, *lock.Client) {
	t.Helper()
	srv := redistest.Start(t)
	s := newScope(t)
	return srv, s, s.open(t, srv.Client(t), lock.WithTracerProvider(noop.NewTracerProvider())) // the exporter would keep every span
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
	t.Cleanup(func() { // also of a test that failed: its waiters end with it
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ctx)
		w.all.Wait()
	})
	for i := range crowd() {
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
			case hasty && (errors.Is(err, lock.ErrHeld) || strings.Contains(err.Error(), "no answer of Redis")): // so many ask at once
				w.timedOut.Add(1)
			default:
				t.Errorf("Lock: %v, impatient: %v", err, hasty)
			}
		})
	}
	eventually(t, crowdPatience, func() bool { return w.timedOut.Load() == int64(crowd()/impatient) })
	return w
}

// look checks what the crowd costs while it waits: at most so many bytes per waiter, with the stack of its goroutine,
// and one connection for all.
func (w *gathering) look(t *testing.T, srv *redistest.Server, most uint64) {
	t.Helper()
	waiters := crowd() - crowd()/impatient
	waiting(t, w.c, waiters)
	eventually(t, crowdPatience, func() bool { return lock.Asleep(w.c, waiters) }) // all subscriptions have come, and who waits has asked once more
	each := (heapAndStacks() - w.mem) / uint64(waiters)
	t.Logf("%d waiters: %d bytes each", waiters, each)
	if each > most {
		t.Errorf("%d bytes per waiter, want %d at most", each, most)
	}
	if n := subscriptions(t, srv.Client(t)); n != 1 {
		t.Errorf("%d connections listen, want one", n)
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
	case <-time.After(stretched(crowdPatience)):
		t.Fatalf("%d served, %d timed out, of %d", w.served.Load(), w.timedOut.Load(), crowd())
	}
	if n := w.served.Load() + w.timedOut.Load(); n != int64(crowd()) {
		t.Errorf("%d of %d were served, or timed out", n, crowd())
	}
}

// perRelease checks that releases cost the same however many wait.
func perRelease(t *testing.T, sent int, releases int64, most float64) {
	t.Helper()
	each := float64(sent) / float64(releases)
	t.Logf("%d releases, %.2f commands each", releases, each)
	if each > most {
		t.Errorf("%.2f commands per release, want %v at most", each, most)
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

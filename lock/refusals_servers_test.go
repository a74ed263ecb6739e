package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Rows of the table of refusals (refusals_test.go) that are about the state of a server.

// keptThrough takes a lock, has the server refuse everybody for a while, and checks that the lease is kept and that
// who wants a lock meanwhile is told why not.
func (r *refusal) keptThrough(t *testing.T, kind, text string, refuse, recover func()) {
	t.Helper()
	c := r.open(t, r.srv.Client(t), lock.WithWatchdog(3*time.Second))
	l := try(t, c.Mutex("job"))
	held := try(t, newScope(t).open(t, r.rdb).Mutex("awaited"))
	waiter := begin(t.Context(), c.Mutex("awaited"))
	listenedTo(t, r.rdb, "awaited")
	at := l.Deadline()
	eventually(t, patience, func() bool { return l.Deadline().After(at) }) // the next renewal is a second away
	refuse()
	eventually(t, patience, func() bool { return r.errors(t, "renew", kind) > 0 })
	_, err := c.Mutex("other").TryLock(t.Context())
	mustMention(t, err, "other", text)
	if n := r.errors(t, "acquire", kind); n < 2 {
		t.Errorf("errors %v, want some of acquires, type %s", r.series(t, telemetry.MetricErrors), kind)
	}
	recover()
	at = l.Deadline()
	eventually(t, patience, func() bool {
		if err := l.Err(); err != nil {
			t.Fatalf("the lease wasn't kept: %v", err)
		}
		return l.Deadline().After(at)
	})
	free(t, l)
	free(t, held)
	free(t, granted(t, waiter))
	free(t, try(t, c.Mutex("other")))
}

func replica(t *testing.T, _ *refusal) {
	s := newScope(t)
	rs := redistest.StartReplicated(t, 1)
	direct := rs.Primary.Client(t)
	l := try(t, newScope(t).open(t, direct).Mutex("held"))
	replicated(t, rs.Primary)
	c := s.open(t, rs.Replicas[0].Client(t))
	_, err := c.Mutex("job").TryLock(t.Context())
	mustMention(t, err, "job", "READONLY")
	if n := s.sum(t, telemetry.MetricErrors, "lockdog.operation=acquire", "error.type=readonly"); n < 2 {
		t.Errorf("errors %v, want some of type readonly: a failover may be under way", s.series(t, telemetry.MetricErrors))
	}
	_, err = c.Mutex("held").TryLock(t.Context())
	mustMatch(t, err, lock.ErrHeld)
	_, err = c.Mutex("held").ForceUnlock(t.Context())
	mustMention(t, err, "held", "READONLY")
	free(t, l)
}

// demoted: the server is a replica for a while, of a primary that it can't reach.
func demoted(t *testing.T, r *refusal) {
	of := func(host, port string) func() {
		return func() {
			t.Helper()
			if err := r.rdb.ReplicaOf(t.Context(), host, port).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.keptThrough(t, "readonly", "READONLY", of("127.0.0.1", "1"), of("NO", "ONE"))
}

var loads = []redistest.Option{
	redistest.WithConfig("enable-debug-command", "yes"),
	redistest.WithConfig("key-load-delay", "25000"), // µs
	redistest.WithConfig("rdbcompression", "no"),
	redistest.WithConfig("loading-process-events-interval-bytes", "1024"),
}

// loading: the server reads its data from disk, which takes it 2 s.
func loading(t *testing.T, r *refusal) {
	for i := range 80 {
		if err := r.rdb.Set(t.Context(), fmt.Sprintf("filler:%d", i), strings.Repeat("x", 1024), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	reloaded := make(chan error, 1)
	r.keptThrough(t, "loading", "LOADING", func() {
		go func() { reloaded <- r.rdb.Do(context.Background(), "debug", "reload").Err() }()
	}, func() {
		if err := await(t, "DEBUG RELOAD", reloaded); err != nil {
			t.Error(err)
		}
	})
}

// busy: a script runs until it is killed.
func busy(t *testing.T, r *refusal) {
	ended := make(chan error, 1)
	endless := r.srv.Client(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Minute, -1 })
	r.keptThrough(t, "busy", "BUSY", func() {
		go func() { ended <- endless.Eval(context.Background(), "while true do end", nil).Err() }()
		eventually(t, patience, func() bool {
			err := r.rdb.Ping(t.Context()).Err()
			return err != nil && strings.Contains(err.Error(), "BUSY")
		})
	}, func() {
		eventually(t, patience, func() bool { return r.rdb.ScriptKill(t.Context()).Err() == nil })
		if err := await(t, "the endless script", ended); err == nil {
			t.Error("it ended by itself")
		}
	})
}

// full: what is held can be handed over yet. (Renewal and release: TestFullServerStillRenewsAndReleases.)
func full(t *testing.T, r *refusal) {
	c, other := r.open(t, r.srv.Client(t)), newScope(t).open(t, r.rdb)
	free(t, try(t, c.Mutex("warm-up")))
	memory := func(max string) {
		if err := r.rdb.ConfigSet(t.Context(), "maxmemory", max).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var heired *lock.Lease
	for range 10 {
		l := try(t, c.Mutex("job"))
		heir := begin(t.Context(), c.Mutex("job"))
		listenedTo(t, r.rdb, "job")
		memory("1")
		free(t, l)
		got := await(t, "the heir", heir)
		if heired = got.Lease; heired != nil {
			break
		}
		mustMention(t, got.err, "job", "OOM") // it was asking just then, as one does once it listens
		memory("0")
	}
	if heired == nil {
		t.Fatal("no hand-over")
	}
	stranger := begin(t.Context(), other.Mutex("job"))
	waiting(t, other, 1)
	free(t, heired)
	mustMention(t, await(t, "the waiter", stranger).err, "job", "OOM")
	if r.exists(t, "job") {
		t.Error("the lock is held")
	}
}

// flushed: the script of a hand-over is unknown.
func flushed(t *testing.T, r *refusal) {
	c := r.open(t, r.srv.Client(t))
	l := try(t, c.Mutex("job"))
	heir := begin(t.Context(), c.Mutex("job"))
	listenedTo(t, r.rdb, "job")
	if err := r.rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	free(t, l)
	if n := r.sum(t, telemetry.MetricWakeups, "lockdog.wakeup.source=local"); n > 1 {
		t.Errorf("wake-ups %v", r.series(t, telemetry.MetricWakeups))
	}
	l = granted(t, heir)
	if n := r.sum(t, telemetry.MetricErrors); n != 0 {
		t.Errorf("errors %v, want none", r.series(t, telemetry.MetricErrors))
	}
	free(t, l)
}

// wrongType: somebody has put a string where the lock is.
func wrongType(t *testing.T, r *refusal) {
	c := r.open(t, r.srv.Client(t), lock.WithWatchdog(steady))
	spoil := func(name string) {
		t.Helper()
		if err := r.rdb.Set(t.Context(), name, "a string", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	spoil("acquire")
	_, err := c.Mutex("acquire").TryLock(t.Context())
	mustMatch(t, err, lock.ErrInvalid)
	_, err = c.Mutex("acquire").Lock(t.Context())
	mustMatch(t, err, lock.ErrInvalid)
	_, err = c.Mutex("acquire").Inspect(t.Context())
	mustMatch(t, err, lock.ErrInvalid)
	_, err = c.Mutex("acquire").ForceUnlock(t.Context())
	mustMatch(t, err, lock.ErrInvalid)

	refused := func(err error) { // its holder may have heard of the string before
		t.Helper()
		if !errors.Is(err, lock.ErrLost) {
			mustMatch(t, err, lock.ErrInvalid)
		}
		mustMention(t, err, "lock", "WRONGTYPE")
	}
	released := try(t, c.Mutex("release"))
	spoil("release")
	refused(released.Release(t.Context()))

	handed := try(t, c.Mutex("hand-over"))
	heir := begin(t.Context(), c.Mutex("hand-over"))
	listenedTo(t, r.rdb, "hand-over")
	spoil("hand-over")
	refused(handed.Release(t.Context()))
	mustMatch(t, await(t, "the heir", heir).err, lock.ErrInvalid)

	// One that is renewed, with another that nobody has spoilt.
	lost, kept := try(t, c.Mutex("renew")), try(t, c.Mutex("kept"))
	spoil("renew")
	mustBeLost(t, lost, lock.CauseTaken)
	var e *lock.LostError
	if !errors.As(lost.Err(), &e) || !strings.Contains(e.Error(), "WRONGTYPE") {
		t.Errorf("the lease ended with %v; it should say WRONGTYPE", lost.Err())
	}
	free(t, kept)
	for _, name := range []string{"acquire", "release", "hand-over", "renew"} {
		if got := r.rdb.Get(t.Context(), name).Val(); got != "a string" {
			t.Errorf("%s: the string is now %q", name, got)
		}
	}
}

// A primary that was demoted while it was connected to is left for the new one: by renewals, too, which are told of what became of
// each lock in a list.
func TestDemotedPrimaryIsLeft(t *testing.T) {
	t.Parallel()
	const lease = steady
	rs := redistest.StartReplicated(t, 1)
	before, after := rs.Primary.Client(t), rs.Replicas[0].Client(t)
	var leads atomic.Pointer[redistest.Server] // as a Sentinel says
	leads.Store(rs.Primary)
	s := newScope(t)
	c := s.open(t, rs.Primary.Client(t, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, leads.Load().Addr())
		}
	}), lock.WithWatchdog(lease))
	if _, err := c.Semaphore("permits").TrySetPermits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	kept := []*lock.Lease{try(t, c.Mutex("job")), try(t, c.RWMutex("rw").RLocker()), try(t, c.Semaphore("permits"))}
	eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") >= 3 })
	replicated(t, rs.Primary)
	host, port, err := net.SplitHostPort(rs.Replicas[0].Addr())
	if err := errors.Join(err, after.ReplicaOf(t.Context(), "NO", "ONE").Err(), before.ReplicaOf(t.Context(), host, port).Err()); err != nil {
		t.Fatal(err)
	}
	leads.Store(rs.Replicas[0])
	since := time.Now()
	for _, l := range kept {
		renewedPast(t, l, since.Add(lease)) // by a call that was made since
	}
	mustAllLive(t, kept)
	freeAll(t, kept)
}

//go:build interop

package interop_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

const (
	lease  = 1500 * time.Millisecond // of watchdogs on both sides
	prefix = "shop:"                 // of WithKeyPrefix here and of the NameMapper there
)

// rig is one Redis with a client of each side.
type rig struct {
	universal *redis.UniversalOptions
	nodes     []*redis.Client
	rdb       redis.UniversalClient
	locks     *lock.Client
	java      *peer
}

func newRig(t *testing.T, shape string) *rig {
	t.Helper()
	r := &rig{}
	r.universal, r.nodes = startRedis(t, shape)
	r.java = launchJava(t, r.universal.Addrs, prefix, lease)
	r.rdb = redistest.Open(t, r.universal)
	r.locks = newLocks(t, r.rdb)
	r.java.ready(t)
	return r
}

// startRedis gives what clients are told, and a client of each node.
func startRedis(t *testing.T, shape string) (*redis.UniversalOptions, []*redis.Client) {
	t.Helper()
	if shape == "single" {
		s := redistest.Start(t)
		return s.Universal(), []*redis.Client{s.Client(t)}
	}
	var nodes []*redis.Client
	c := redistest.StartCluster(t, 0)
	for _, s := range c.Nodes {
		nodes = append(nodes, s.Client(t))
	}
	return c.Universal(), nodes
}

// newLocks gives a client whose locks carry a trace, so that Java meets all that lockdog keeps beside an owner.
func newLocks(t *testing.T, rdb redis.UniversalClient) *lock.Client {
	t.Helper()
	tracers := sdktrace.NewTracerProvider()
	c, err := lock.New(rdb, lock.WithKeyPrefix(prefix), lock.WithWatchdog(lease), lock.WithTracerProvider(tracers),
		lock.WithLogger(slog.New(slog.DiscardHandler))) // losses are part of the tests
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*lease)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close the client: %v", err)
		}
		if err := tracers.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// pair gives the lock that is the test's own, as each side sees it.
func (r *rig) pair(t *testing.T) (*lock.Mutex, remote) { return r.named(t.Name()) }

func (r *rig) named(name string) (*lock.Mutex, remote) {
	return r.locks.Mutex(name), remote{r.java, "lock", name}
}

// remote is a lock as another process sees it.
type remote struct {
	p          *peer
	kind, name string
}

// send has a thread of the other process call the operation. Each lock has threads of its own, so that tests which run at
// the same time don't wait for each other's.
func (l remote) send(t *testing.T, thread, operation string, numbers ...int64) *call {
	t.Helper()
	return l.p.send(t, l.name+"/"+thread, operation, l.kind, l.name, numbers...)
}

// call waits for the result.
func (l remote) call(t *testing.T, thread, operation string, numbers ...int64) string {
	t.Helper()
	return l.send(t, thread, operation, numbers...).result(t, callLimit)
}

// says fails the test unless that is the result.
func (l remote) says(t *testing.T, want, thread, operation string, numbers ...int64) {
	t.Helper()
	if got := l.call(t, thread, operation, numbers...); got != want {
		t.Fatalf("%s by %s: %s, want %s", operation, thread, got, want)
	}
}

// throws fails the test unless that is the exception.
func (l remote) throws(t *testing.T, exception, thread, operation string) {
	t.Helper()
	verdict, text := l.send(t, thread, operation).wait(t, callLimit)
	if verdict != "failed" || !strings.HasPrefix(text, exception+":") {
		t.Fatalf("%s by %s: %s %s, want %s", operation, thread, verdict, text, exception)
	}
}

// remaining is Redisson's remainTimeToLive.
func (l remote) remaining(t *testing.T) time.Duration {
	t.Helper()
	ms, err := strconv.ParseInt(l.call(t, "asker", "remainTimeToLive"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// owner is what names that thread in Redis.
func (l remote) owner(t *testing.T, thread string) string {
	t.Helper()
	return l.p.client() + ":" + l.call(t, thread, "threadId")
}

// awaitSubscribers waits until that many connections listen for the lock's release, in the whole Redis.
func (r *rig) awaitSubscribers(t *testing.T, name string, want int64) {
	t.Helper()
	channel := "redisson_lock__channel:" + prefix + name
	if !strings.Contains(name, "{") {
		channel = "redisson_lock__channel:{" + prefix + name + "}"
	}
	until(t, fmt.Sprintf("%d subscribers of %s", want, channel), func(ctx context.Context) error {
		var got int64
		for _, node := range r.nodes {
			for _, ask := range []func(context.Context, ...string) *redis.MapStringIntCmd{node.PubSubNumSub, node.PubSubShardNumSub} {
				subscribers, err := ask(ctx, channel).Result()
				if err != nil {
					return err
				}
				got += subscribers[channel]
			}
		}
		if got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// until polls until ok gives no error, and fails the test with its last one.
func until(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, callLimit, err)
		}
	}
}

// grant is what a Lock came to, and when.
type grant struct {
	lease *lock.Lease
	err   error
	at    time.Time
}

// lockSoon calls Lock in the background.
func lockSoon(t *testing.T, m *lock.Mutex) <-chan grant {
	t.Helper()
	got := make(chan grant, 1)
	ctx := t.Context()
	go func() {
		l, err := m.Lock(ctx)
		got <- grant{l, err, time.Now()}
	}()
	return got
}

func awaitGrant(t *testing.T, got <-chan grant) grant {
	t.Helper()
	select {
	case g := <-got:
		if g.err != nil {
			t.Fatal(g.err)
		}
		return g
	case <-time.After(callLimit):
		t.Fatalf("still not granted after %v", callLimit)
		panic("unreachable")
	}
}

// tryLock takes a lock that has to be free.
func tryLock(t *testing.T, m *lock.Mutex) *lock.Lease {
	t.Helper()
	l, err := m.TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// refused fails the test unless the lock is held, and returns what was said about that.
func refused(t *testing.T, m *lock.Mutex) *lock.HeldError {
	t.Helper()
	_, err := m.TryLock(t.Context())
	var held *lock.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("TryLock: %v, want a HeldError", err)
	}
	return held
}

func release(t *testing.T, l *lock.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("release: %v", err)
	}
}

func inspect(t *testing.T, m *lock.Mutex) lock.Holder {
	t.Helper()
	h, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// numberLease is the lease of clients in the tests of semaphores and latches. Without leases it still means that a
// waiter that gets no message asks again after a third of it.
const numberLease = 1500 * time.Millisecond

// desk is one test's corner of a server, for semaphores and latches.
type desk struct {
	*scope
	t   *testing.T
	sp  spot
	rdb *redis.Client
}

// spot is a [redistest.Fake] or a [redistest.Space].
type spot interface {
	Addr() string
	Prefix() string
	Client(tb testing.TB, change ...func(*redis.Options)) *redis.Client
	Keys(tb testing.TB) []string
}

// newDesk gives one in a bubble.
func newDesk(t *testing.T) *desk { return newDeskAt(t, redistest.StartFake(t)) }

func newDeskAt(t *testing.T, sp spot) *desk {
	t.Helper()
	return &desk{scope: newScope(t), t: t, sp: sp, rdb: sp.Client(t)}
}

// client returns a client with connections of its own.
func (d *desk) client(opts ...lock.Option) *lock.Client {
	d.t.Helper()
	opts = append([]lock.Option{lock.WithKeyPrefix(d.sp.Prefix()), lock.WithLease(numberLease)}, opts...)
	return d.open(d.t, d.sp.Client(d.t), opts...)
}

func (d *desk) key(name string) string { return d.sp.Prefix() + name }

// value is what a key holds, "" if it doesn't exist.
func (d *desk) value(name string) string {
	d.t.Helper()
	v, err := d.rdb.Get(context.Background(), d.key(name)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		d.t.Fatal(err)
	}
	return v
}

// messages is what is published on a channel from now on.
func messages(t *testing.T, rdb *redis.Client, channel string) <-chan *redis.Message {
	t.Helper()
	ps := rdb.Subscribe(context.Background(), channel)
	t.Cleanup(func() { _ = ps.Close() })
	if _, err := ps.Receive(context.Background()); err != nil {
		t.Fatal(err)
	}
	return ps.Channel()
}

func mustBe(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// available asks a semaphore how many permits are left.
func available(t *testing.T, s interface {
	Available(ctx context.Context) (int, error)
},
) int {
	t.Helper()
	n, err := s.Available(context.Background())
	must(t, "Available", err)
	return n
}

// acquiring calls Acquire on another goroutine.
func acquiring(ctx context.Context, s *lock.UnleasedSemaphore, n int) <-chan error {
	c := make(chan error, 1)
	go func() { c <- s.Acquire(ctx, n) }()
	return c
}

func second[T any](_ T, err error) error { return err }

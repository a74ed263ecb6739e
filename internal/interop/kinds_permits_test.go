//go:build interop

package interop_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/lockdog/lockdog/lock"
)

// semaphores have permits: one, unless a test says otherwise.
var semaphores = []kind{
	{
		name: "semaphore", java: "semaphore", permits: true, bare: true,
		open: func(c *lock.Client, name string, opts ...lock.LockOption) ours {
			return ours{bare: c.UnleasedSemaphore(name, opts...)}
		},
		channel: semaphoreChannel, keys: func(string) []string { return nil },
	},
	{
		name: "permits", java: "permits", permits: true,
		open: func(c *lock.Client, name string, opts ...lock.LockOption) ours {
			return ours{Locker: c.Semaphore(name, opts...)}
		},
		channel: semaphoreChannel, keys: func(key string) []string { return []string{permitsKey(key)} },
	},
}

func semaphoreChannel(key string) string { return prefixName("redisson_sc", key) }

// permitsKey has the permits that are taken, and until when.
func permitsKey(key string) string { return suffixName(key, "timeout") }

// counted is what both semaphores do.
type counted interface {
	TrySetPermits(ctx context.Context, n int) (bool, error)
	AddPermits(ctx context.Context, delta int) error
	Available(ctx context.Context) (int, error)
}

func (o ours) counted(t *testing.T) counted {
	t.Helper()
	if o.bare != nil {
		return o.bare
	}
	c, ok := o.Locker.(counted)
	if !ok {
		t.Fatalf("%T has no permits", o.Locker)
	}
	return c
}

// set gives a new semaphore its permits.
func set(t *testing.T, o ours, permits int) {
	t.Helper()
	if done, err := o.counted(t).TrySetPermits(t.Context(), permits); err != nil || !done {
		t.Fatalf("TrySetPermits: %v, %v", done, err)
	}
}

// has fails the test unless that many permits are left, in Redis.
func (r *rig) has(t *testing.T, name string, permits int) {
	t.Helper()
	if n, err := r.rdb.Get(t.Context(), prefix+name).Result(); err != nil || n != strconv.Itoa(permits) {
		t.Errorf("%s has %s permits left, %v; want %d", name, n, err, permits)
	}
}

//go:build interop

package interop_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/lock"
)

// kind is something that both sides take from each other.
type kind struct {
	name string
	java string // what Java takes, as its Operations call it
	same string // what Java calls that which lockdog takes, where it is something else than Java takes
	open func(c *lock.Client, name string, opts ...lock.LockOption) ours

	channel func(key string) string   // where a release is heard of
	keys    func(key string) []string // that are gone when nobody holds it or waits for it

	permits bool // it has a number of permits, here one
	bare    bool // a permit has no lease
}

// kinds are all of them but the latch, which isn't held.
var kinds = slices.Concat(mutexes, readWrites, semaphores)

// mutexes have one holder, on either side.
var mutexes = []kind{
	{
		name: "lock", java: "lock",
		open: func(c *lock.Client, name string, opts ...lock.LockOption) ours {
			return ours{Locker: c.Mutex(name, opts...)}
		},
		channel: lockChannel, keys: oneKey,
	},
	{
		name: "fenced", java: "fenced",
		open: func(c *lock.Client, name string, opts ...lock.LockOption) ours {
			return ours{Locker: c.Mutex(name, append(opts, lock.WithRedissonTokens())...)}
		},
		channel: lockChannel, keys: oneKey,
	},
	{
		name: "fair", java: "fair",
		open: func(c *lock.Client, name string, opts ...lock.LockOption) ours {
			return ours{Locker: c.FairMutex(name, opts...)}
		},
		channel: lockChannel,
		keys: func(key string) []string {
			return []string{
				key, prefixName("redisson_lock_queue", key), prefixName("redisson_lock_timeout", key), prefixName("lockdog_fair", key),
			}
		},
	},
}

// prefixName puts something before a name, as Redisson does: in the name's slot.
func prefixName(before, name string) string {
	if strings.Contains(name, "{") {
		return before + ":" + name
	}
	return before + ":{" + name + "}"
}

// suffixName puts it behind.
func suffixName(name, behind string) string {
	if strings.Contains(name, "{") {
		return name + ":" + behind
	}
	return "{" + name + "}:" + behind
}

func lockChannel(key string) string { return prefixName("redisson_lock__channel", key) }

func oneKey(key string) []string { return []string{key} }

// kindNamed is nil if there is none.
func kindNamed(name string) *kind {
	for i := range kinds {
		if kinds[i].name == name {
			return &kinds[i]
		}
	}
	return nil
}

// javaShares and goShares tell the readers: their side has several at once.
func (k *kind) javaShares() bool { return k.java == "read" }
func (k *kind) goShares() bool   { return k.same == "read" }

func (k *kind) any() bool { return true }

// isLock tells the locks, which have an owner, from permits.
func (k *kind) isLock() bool { return !k.permits }

// readWrite tells those that are one half of a read-write lock each.
func (k *kind) readWrite() bool { return k.java == "read" || k.java == "write" }

// ours is how lockdog takes it.
type ours struct {
	lock.Locker                         // nil: see bare
	bare        *lock.UnleasedSemaphore // whose permits have no lease
}

// held is what was taken.
type held struct {
	*lock.Lease // nil: a permit that has none
	release     func(context.Context) error
}

func (o ours) take(ctx context.Context, wait bool) (held, error) {
	if o.bare != nil {
		acquire := o.bare.TryAcquire
		if wait {
			acquire = o.bare.Acquire
		}
		return held{release: func(ctx context.Context) error { return o.bare.Release(ctx, 1) }}, acquire(ctx, 1)
	}
	acquire := o.TryLock
	if wait {
		acquire = o.Lock
	}
	l, err := acquire(ctx)
	if err != nil {
		return held{}, err
	}
	return held{l, l.Release}, nil
}

// inspected is what a lock says of itself.
type inspected interface {
	Inspect(ctx context.Context) (lock.Holder, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

func (o ours) inspected(t *testing.T) inspected {
	t.Helper()
	i, ok := o.Locker.(inspected)
	if !ok {
		t.Fatalf("%T has no Inspect", o.Locker)
	}
	return i
}

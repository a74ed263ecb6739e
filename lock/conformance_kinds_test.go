package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// The conformance suite runs for every kind of lock that one owner at a time can hold. Another kind is one entry in kinds.

// subject is a lock under test.
type subject interface {
	lock.Locker
	Inspect(ctx context.Context) (lock.Holder, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

// kindOfLock is what the suite has to know of a kind.
type kindOfLock struct {
	name string // lockdog.kind
	make func(c *lock.Client, name string, opts ...lock.LockOption) subject
	// hold has somebody hold the lock, as Redisson writes it; nil: as a field of a hash.
	hold func(r raw, key, owner, count string, lease time.Duration)
	// ending is what the names of its owners end in.
	ending string
	// but says of behaviours of Mutex why this kind's are others.
	but map[string]string
}

var mutexes = kindOfLock{
	name: "mutex",
	make: func(c *lock.Client, name string, opts ...lock.LockOption) subject { return c.Mutex(name, opts...) },
}

// allKinds are those that the suite runs for.
var allKinds = []kindOfLock{
	mutexes,
	{
		name: "fair",
		make: func(c *lock.Client, name string, opts ...lock.LockOption) subject { return c.FairMutex(name, opts...) },
		but: map[string]string{
			"Lock/hands over": "the next may be another client's",
		},
	},
	{
		name: "write",
		make: func(c *lock.Client, name string, opts ...lock.LockOption) subject { return c.RWMutex(name, opts...) },
		hold: func(r raw, key, owner, count string, lease time.Duration) {
			r.hset(key, owner, count, lease) // first: between the two a renewal may look
			r.hset(key, "mode", "write", 0)
		},
		ending: ":write",
		but:    map[string]string{},
	},
	{
		name: "multi",
		make: func(c *lock.Client, name string, opts ...lock.LockOption) subject {
			return oneOf{c.Multi([]string{name}, opts...), c.Mutex(name, opts...)}
		},
	},
}

// oneOf is a Multi of one name. Who holds that is seen, and ended, by its Mutex.
type oneOf struct {
	*lock.Multi
	mutex *lock.Mutex
}

func (o oneOf) Inspect(ctx context.Context) (lock.Holder, error) { return o.mutex.Inspect(ctx) }
func (o oneOf) ForceUnlock(ctx context.Context) (bool, error)    { return o.mutex.ForceUnlock(ctx) }

// An exception that names no behaviour excuses nothing.
func TestExceptionsNameBehaviours(t *testing.T) {
	t.Parallel()
	known := make(map[string]bool)
	for _, theme := range themes {
		for _, b := range theme.table {
			known[b.name] = true
		}
	}
	for _, k := range allKinds {
		for name := range k.but {
			if !known[name] {
				t.Errorf("%s: there is no behaviour %q", k.name, name)
			}
		}
	}
}

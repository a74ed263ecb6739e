//go:build chaos

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/lock"
)

// kind is a way to take locks: what the workload needs to know of it.
type kind struct {
	name   string
	weight int  // how much of a name's room one grant takes; more than the room of a name can't be in it at one time
	room   int  //
	shared bool // others may be in it at the same time: a store that checks tokens would refuse most of them
	all    bool // it takes all names of the run at once
	whole  bool // see history.Event
	locker func(c *client, names []string, opts ...lock.LockOption) lock.Locker
}

// family is those kinds that may be asked for the same names. A run is about one family.
type family struct {
	name   string
	shapes []string // nil: all but quorum
	kinds  []kind
	// force is ForceUnlock, nil: it has none.
	force func(c *lock.Client, name string) func(context.Context) (bool, error)
	// numbers have no leases: what Redis or a client that was killed has lost of them is lost.
	numbers bool
	// counted kinds have a number beside the leases. Whoever evicts one and not the other changes it for good.
	counted bool
	// nests tells that one name may be taken while the other is held.
	nests bool
}

const (
	permits = 3    // that a semaphore has
	readers = 1000 // that may be in at one time
)

func mutex(c *client, names []string, opts ...lock.LockOption) lock.Locker {
	return c.locks.Mutex(names[0], opts...)
}

func forceMutex(c *lock.Client, name string) func(context.Context) (bool, error) {
	return c.Mutex(name).ForceUnlock
}

// replicaPatience is how long a grant waits for a replica, and has to be shorter than every timeout and lease of a schedule.
const replicaPatience = 150 * time.Millisecond

// families are all families of kinds. To add one is to add it here.
var families = []family{
	{name: "mutex", nests: true, force: forceMutex, kinds: []kind{{name: "mutex", weight: 1, room: 1, locker: mutex}}},
	{name: "fencedmutex", nests: true, force: forceMutex, kinds: []kind{{
		name: "fencedmutex", weight: 1, room: 1,
		locker: func(c *client, names []string, opts ...lock.LockOption) lock.Locker {
			return c.locks.Mutex(names[0], append(opts, lock.WithRedissonTokens())...)
		},
	}}},
	{name: "replicas", shapes: []string{replicated, sentinel, failoverCluster, cluster}, force: forceMutex, kinds: []kind{{
		name: "replicas", weight: 1, room: 1,
		locker: func(c *client, names []string, opts ...lock.LockOption) lock.Locker {
			return c.locks.Mutex(names[0], append(opts, lock.WithReplicas(1, replicaPatience))...)
		},
	}}},
	{
		name: "fair", nests: true, kinds: []kind{{
			name: "fair", weight: 1, room: 1,
			locker: func(c *client, names []string, opts ...lock.LockOption) lock.Locker {
				return c.locks.FairMutex(names[0], opts...)
			},
		}},
		force: func(c *lock.Client, name string) func(context.Context) (bool, error) {
			return c.FairMutex(name).ForceUnlock
		},
	},
	{
		name: "rw", nests: true, kinds: []kind{
			{name: "write", weight: readers, room: readers, locker: func(c *client, names []string, opts ...lock.LockOption) lock.Locker {
				return c.locks.RWMutex(names[0], opts...)
			}},
			{name: "read", weight: 1, room: readers, shared: true, locker: func(c *client, names []string, opts ...lock.LockOption) lock.Locker {
				return c.locks.RWMutex(names[0], opts...).RLocker()
			}},
		},
		force: func(c *lock.Client, name string) func(context.Context) (bool, error) {
			return c.RWMutex(name).ForceUnlock
		},
	},
	{name: "permits", counted: true, kinds: []kind{{
		name: "permits", weight: 1, room: permits, shared: true,
		locker: func(c *client, names []string, opts ...lock.LockOption) lock.Locker {
			return c.locks.Semaphore(names[0], opts...)
		},
	}}},
	{name: "multi", force: forceMutex, kinds: []kind{
		{name: "multi", weight: 1, room: 1, all: true, whole: true, locker: func(c *client, names []string, opts ...lock.LockOption) lock.Locker {
			return c.locks.Multi(names, opts...)
		}},
		{name: "mutex", weight: 1, room: 1, locker: mutex},
	}},
	{name: "quorum", shapes: []string{quorum}, kinds: []kind{{
		name: "quorum", weight: 1, room: 1, whole: true,
		locker: func(c *client, names []string, opts ...lock.LockOption) lock.Locker {
			return c.quorum.Mutex(names[0], opts...)
		},
	}}},
	{name: history.KindSemaphore, counted: true, numbers: true},
	{name: history.KindLatch, counted: true, numbers: true},
}

func familyNamed(name string) (family, bool) {
	i := slices.IndexFunc(families, func(f family) bool { return f.name == name })
	if i < 0 {
		return family{}, false
	}
	return families[i], true
}

// on reports whether the family is there on a shape of Redis.
func (f family) on(shape string) bool {
	if f.shapes == nil {
		return shape != quorum
	}
	return slices.Contains(f.shapes, shape)
}

// survives reports whether the family has anything to say after a fault.
func (f family) survives(shape string, s step) bool {
	fault, _ := faultNamed(s.Fault)
	switch {
	case f.numbers && (fault.kills || fault.loses != nil && fault.loses(shape, s)):
		return false
	case f.counted && fault.evicts:
		return false
	}
	return true
}

// targets are the names of a run of the family: a hot one, and one that is also held for long.
func (f family) targets(rng *rand.Rand) []target {
	if f.name == history.KindLatch {
		all := make([]target, latches)
		for i := range all {
			all[i] = target{Name: fmt.Sprintf("%s:%d", f.name, i), Family: f.name}
		}
		return all
	}
	format := "%s:%d"
	if f.name == "multi" && rng.IntN(2) == 0 { // they live together, also in a cluster
		format = "{%s}:%d"
	}
	return []target{
		{Name: fmt.Sprintf(format, f.name, 0), Family: f.name},
		{Name: fmt.Sprintf(format, f.name, 1), Family: f.name, Long: true},
	}
}

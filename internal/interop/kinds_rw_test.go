//go:build interop

package interop_test

import (
	"github.com/lockdog/lockdog/lock"
)

// readWrites are the pairs of sides of a read-write lock that exclude each other.
var readWrites = []kind{
	{name: "write", java: "write", open: writes, channel: rwChannel, keys: rwKeys},
	{name: "read-write", java: "write", same: "read", open: reads, channel: rwChannel, keys: rwKeys}, // Go reads, Java writes
	{name: "write-read", java: "read", same: "write", open: writes, channel: rwChannel, keys: rwKeys},
}

func writes(c *lock.Client, name string, opts ...lock.LockOption) ours {
	return ours{Locker: c.RWMutex(name, opts...)}
}

func reads(c *lock.Client, name string, opts ...lock.LockOption) ours {
	m := c.RWMutex(name, opts...)
	return ours{Locker: reading{m.RLocker(), m}}
}

// rival is what lockdog doesn't get while either side has it.
func (k *kind) rival(r *rig, name string) ours {
	if k.goShares() {
		return writes(r.locks, name)
	}
	return k.open(r.locks, name)
}

// reading is a read-write lock as who reads has it.
type reading struct {
	lock.Locker
	inspected
}

func rwChannel(key string) string { return prefixName("redisson_rwlock", key) }

func rwKeys(key string) []string { return []string{key, suffixName(key, "lockdog_writers")} }

package lock

import (
	"fmt"
	"time"
)

func (c *lockConfig) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// with returns the configuration with the options of one lock on top, and without some defaults that don't fit these
// options or the lock's kind. Without options it returns the defaults themselves.
func (defaults *lockConfig) with(opts []LockOption, k *kind) *lockConfig {
	if len(opts) == 0 {
		return defaults
	}
	c := *defaults
	c.leaseSet, c.fixedSet, c.maxHoldSet, c.heartbeatSet, c.minHoldSet, c.takeoverDelaySet, c.err =
		false, false, false, false, false, false, nil
	for _, o := range opts {
		if o == nil {
			c.fail("an option is nil")
			continue
		}
		o.applyLock(&c)
	}
	if !c.minHoldSet && k.retain == nil {
		c.minHold = 0
	}
	if c.fixedSet || k.leaseless { // the defaults of New for renewed leases don't apply
		if !c.maxHoldSet {
			c.maxHold = 0
		}
		if !c.heartbeatSet {
			c.heartbeat = 0
		}
	}
	c.check()
	return &c
}

// check validates the options together. It also rounds the lease, and sets ttlArg.
func (c *lockConfig) check() {
	if c.lease < MinLease || c.lease > MaxLease {
		c.fail("lease %v: %v to %v are allowed", c.lease, MinLease, MaxLease)
	}
	c.lease = c.lease.Truncate(time.Millisecond) // Redis counts milliseconds
	c.ttlArg = c.ttl().Milliseconds()
	if c.leaseSet && c.fixedSet {
		c.fail("WithLease and WithFixedLease contradict each other")
	}
	if c.replicaWait >= c.lease {
		c.fail("WithReplicas(%d, %v): must be shorter than the lease, %v", c.replicas, c.replicaWait, c.lease)
	}
	c.checkCut("WithMaxHold", c.maxHold, c.maxHoldSet)
	c.checkCut("WithHeartbeat", c.heartbeat, c.heartbeatSet)
	switch {
	case c.minHold == 0:
	case c.maxHold > 0 && c.minHold > c.maxHold:
		c.fail("WithMinHold(%v) and WithMaxHold(%v) contradict each other: it must not be the longer one",
			c.minHold, c.maxHold)
	case c.fixed && c.minHold > c.lease:
		c.fail("WithMinHold(%v): must not be longer than WithFixedLease(%v), after which the lock is free if it wasn't released",
			c.minHold, c.lease)
	}
}

// checkCut validates an option that stops renewal.
func (c *lockConfig) checkCut(name string, d time.Duration, set bool) {
	switch {
	case !set && d == 0:
	case c.fixed:
		c.fail("%s and WithFixedLease contradict each other: a fixed lease is never renewed", name)
	case d < c.interval():
		c.fail("%s(%v): must be at least the renewal interval, %v", name, d, c.interval())
	}
}

// aboutLease reports whether an option of this level is refused by kinds without leases.
func (c *lockConfig) aboutLease() bool {
	return c.fixedSet || c.maxHoldSet || c.heartbeatSet || c.takeoverDelaySet
}

// ttl returns the expiry that an acquire or a renewal gives the lock in Redis.
func (c *lockConfig) ttl() time.Duration { return c.lease + c.takeoverDelay }

// interval returns the time between two renewals, 0 for a fixed lease.
func (c *lockConfig) interval() time.Duration {
	if c.fixed {
		return 0
	}
	return c.lease / renewalsPerLease
}

// margin returns how long before the end of the lease this process stops trusting it.
func (c *lockConfig) margin() time.Duration { return marginOf(c.lease) }

// marginOf returns the margin of a lease, or of the time for which a grant by message is trusted: clocks differ in
// rate, and Redis counts milliseconds.
func marginOf(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

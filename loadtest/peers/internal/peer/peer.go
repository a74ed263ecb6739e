// Package peer has one interface for the lock libraries that are compared. Each has the settings that its own
// documentation recommends for a single Redis, except for the lease, and for when and how often it tries again.
package peer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The peers.
const (
	Floor       = "floor"        // raw go-redis: SET NX PX and a compare-and-delete script
	Gate        = "floor-gate"   // floor behind a FIFO queue in the process
	RawScript   = "raw-evalsha"  // floor that acquires with a script
	Redislock   = "redislock"    // github.com/bsm/redislock
	Redsync     = "redsync"      // github.com/go-redsync/redsync
	Rueidislock = "rueidislock"  // github.com/redis/rueidis/rueidislock
	Lockdog     = "lockdog"      // with no-op telemetry
	LockdogSDK  = "lockdog-sdk"  // with the SDK's metrics, and every trace sampled
	LockdogLoss = "lockdog-loss" // with no-op telemetry and WithLossNotifications
)

// Pooled is the end of a peer's name if its go-redis client may have as many connections as the process has callers.
const Pooled = "+pool"

// WithPools adds a Pooled peer for each peer that uses go-redis.
func WithPools(names ...string) []string {
	var all []string
	for _, name := range names {
		all = append(all, name)
		if name != Rueidislock { // it has one connection for all callers, whatever the pool size
			all = append(all, name+Pooled)
		}
	}
	return all
}

// retryEvery is the time between two tries of a waiter that isn't woken.
const retryEvery = 5 * time.Millisecond

// errNotOurs is the error of a release that finds the lock gone, or held by another.
var errNotOurs = errors.New("not ours any more")

// ErrHeld is returned by Lock without wait if another holds the lock.
var ErrHeld = errors.New("held by another")

// Held is a lock that is held.
type Held interface {
	Release(ctx context.Context) error
}

// Locks is one library in one process.
type Locks interface {
	// Lock waits for the lock or, without wait, tries once and returns ErrHeld if another holds it.
	Lock(ctx context.Context, name string, wait bool) (Held, error)
	Close() error
}

// refused returns the error of a Lock: err, or ErrHeld if that is what it means.
func refused(err error, held bool) error {
	if held {
		return ErrHeld
	}
	return err
}

// Teller is a library that notifies a holder of the loss of its lock.
type Teller interface {
	Locks
	// Lost returns a channel that is closed when the holder has lost or released the lock.
	Lost(h Held) <-chan struct{}
	// Key returns the lock's key in Redis.
	Key(name string) string
	// Force takes the lock away from another client.
	Force(ctx context.Context, name string) error
}

// Config has the settings for all peers.
type Config struct {
	Addrs   []string      `json:"addrs"`
	Cluster bool          `json:"cluster"`
	Lease   time.Duration `json:"lease"`
	Callers int           `json:"callers"` // goroutines that call concurrently

	poolSize int // of go-redis's clients; 0: the default
}

// Open starts a peer.
func Open(name string, cfg Config) (Locks, error) {
	library, pooled := strings.CutSuffix(name, Pooled)
	if pooled {
		cfg.poolSize = cfg.Callers
	}
	switch {
	case library == Floor || library == RawScript:
		return newFloor(cfg, library == RawScript), nil
	case library == Gate:
		return &gated{floor: newFloor(cfg, false)}, nil
	case library == Redislock:
		return newRedislock(cfg), nil
	case library == Redsync:
		return newRedsync(cfg), nil
	case name == Rueidislock:
		return openRueidislock(cfg)
	case library == Lockdog || library == LockdogSDK || library == LockdogLoss:
		return openLockdog(library, cfg)
	}
	return nil, fmt.Errorf("no peer is called %q", name)
}

// SendsSet reports whether a peer's SETs come over the network. Other peers' SETs are called by scripts.
func SendsSet(name string) bool {
	library := strings.TrimSuffix(name, Pooled)
	return library == Floor || library == Gate || library == Redsync
}

// connect makes a client as most programs do: with go-redis's defaults, except for Pooled peers.
func connect(cfg Config) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: cfg.Addrs, IsClusterMode: cfg.Cluster, PoolSize: cfg.poolSize,
	})
}

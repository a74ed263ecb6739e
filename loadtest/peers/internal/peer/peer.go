// Package peer puts the lock libraries that are compared behind one interface, each with the settings that its own
// documentation recommends for a single Redis.
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
	Gate        = "floor-gate"   // the same behind a FIFO queue in the process
	RawScript   = "raw-evalsha"  // the same, asking with a script
	Redislock   = "redislock"    // github.com/bsm/redislock
	Redsync     = "redsync"      // github.com/go-redsync/redsync
	Rueidislock = "rueidislock"  // github.com/redis/rueidis/rueidislock
	Lockdog     = "lockdog"      // with no-op telemetry
	LockdogSDK  = "lockdog-sdk"  // with the SDK's metrics, and every trace sampled
	LockdogLoss = "lockdog-loss" // with no-op telemetry and WithLossNotifications
)

// Pooled ends the name of a peer whose go-redis client may have as many connections as the process has callers.
const Pooled = "+pool"

// WithPools adds to each peer that uses go-redis the one that is Pooled.
func WithPools(names ...string) []string {
	var all []string
	for _, name := range names {
		all = append(all, name)
		if name != Rueidislock { // it has one connection for all, whatever is set
			all = append(all, name+Pooled)
		}
	}
	return all
}

// retryEvery is the time between tries of a waiter that nothing wakes.
const retryEvery = 5 * time.Millisecond

// errNotOurs is the error of a release that finds the lock gone, or another's.
var errNotOurs = errors.New("not ours any more")

// ErrHeld is TryLock's answer when another has the lock.
var ErrHeld = errors.New("held by another")

// Held is a lock that is held.
type Held interface {
	Release(ctx context.Context) error
}

// Locks is one library as one process uses it.
type Locks interface {
	// Lock waits for the lock.
	Lock(ctx context.Context, name string) (Held, error)
	// TryLock asks once; ErrHeld if another has it.
	TryLock(ctx context.Context, name string) (Held, error)
	Close() error
}

// Teller is a library that tells a holder when its lock is gone.
type Teller interface {
	Locks
	// Lost is closed when the lock isn't the holder's any more.
	Lost(h Held) <-chan struct{}
	// Key is the lock's key in Redis.
	Key(name string) string
	// Force takes the lock away from another client.
	Force(ctx context.Context, name string) error
}

// Config is where the Redis is, and how long leases are.
type Config struct {
	Addrs   []string
	Cluster bool
	Lease   time.Duration
	Callers int // goroutines that call at the same time

	poolSize int // of go-redis's clients; 0: the default
}

var opens = map[string]func(Config) (Locks, error){
	Floor:       openFloor,
	Gate:        openGate,
	RawScript:   openRawScript,
	Redislock:   openRedislock,
	Redsync:     openRedsync,
	Rueidislock: openRueidislock,
	Lockdog:     openLockdog,
	LockdogSDK:  openLockdogSDK,
	LockdogLoss: openLockdogLoss,
}

// Open starts a peer.
func Open(name string, cfg Config) (Locks, error) {
	library, pooled := strings.CutSuffix(name, Pooled)
	open, ok := opens[library]
	if !ok || pooled && library == Rueidislock {
		return nil, fmt.Errorf("no peer is called %q", name)
	}
	if pooled {
		cfg.poolSize = cfg.Callers
	}
	return open(cfg)
}

// SendsSet reports whether a peer's SETs come over the network. Those of the others are called by scripts.
func SendsSet(name string) bool {
	library := strings.TrimSuffix(name, Pooled)
	return library == Floor || library == Gate || library == Redsync
}

// connect makes a client as most programs do: with go-redis's defaults, but for the peers that are Pooled.
func connect(cfg Config) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: cfg.Addrs, IsClusterMode: cfg.Cluster, PoolSize: cfg.poolSize})
}

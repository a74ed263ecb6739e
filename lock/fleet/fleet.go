package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrInvalid is matched by the error of a client that can't be used, a pattern that is malformed, or a name that is empty.
var ErrInvalid = errors.New("fleet: invalid")

// ErrNotALock is matched by the error of Look for a key that holds something else than a lock.
var ErrNotALock = errors.New("fleet: the key holds no lock")

// Kind is what a lock is, as far as its keys tell.
type Kind string

// The kinds.
const (
	Mutex     Kind = "mutex"      // Mutex, also of a Multi or a Quorum; Redisson's RLock
	Fair      Kind = "fair mutex" // a mutex with a queue in Redis: a FairMutex that is awaited; Redisson's RFairLock
	RW        Kind = "rwmutex"    // RWMutex; Redisson's RReadWriteLock
	Semaphore Kind = "semaphore"  // Semaphore; Redisson's RPermitExpirableSemaphore
	Number    Kind = "number"     // UnleasedSemaphore, Latch, or a Semaphore of which no permit was ever taken; Look alone finds it
)

// Most bounds how many holders and waiters of one lock are named.
const Most = 100

// Lock is a lock that is held, or awaited. The zero value of a field means that it isn't known.
type Lock struct {
	Name      string        // without the key prefix
	Key       string        // in Redis
	Kind      Kind          // of the lock
	Mode      string        // of an RW: "read" or "write"
	Holders   []Holder      // of a Semaphore none; of many readers some: at most Most
	Held      int           // how many leases hold it; of a Semaphore the permits that are held
	Available int           // of a Semaphore: the permits that are left, negative if more are held than it has; of a Number what it is
	Remaining time.Duration // until the lease ends unless renewed, of several the longest, of a Semaphore the next; negative: it has no end
	Waiters   []Waiter      // those that Redis knows, the first first: at most Most. Beside the lock it knows one wait of a client; in the wait graph all that last
	Waiting   int           // how many Redis knows
}

// Holder has a lease of a lock.
type Holder struct {
	Owner     string        // as Lease.Owner
	ClientID  string        // as WithClientID, "" for Redisson
	Redisson  bool          // a Redisson client
	Count     int           // how often a Redisson client has entered
	Mode      string        // of an RW: "read" or "write"
	Token     int64         // of a lockdog client
	Since     time.Time     // when it got the lock, by Redis's clock; zero for Redisson, and WithRedissonTokens
	TraceID   string        // of the acquire
	SpanID    string        // of the acquire
	Remaining time.Duration // of its lease; negative: it has no end
}

// Waiter waits for a lock.
type Waiter struct {
	Owner    string    // of the lease that it wants; "" where Redis knows the client alone
	ClientID string    // as WithClientID, "" for Redisson, and where Redis knows the client by a number alone
	Redisson bool      // a Redisson client
	TraceID  string    // of the acquire
	SpanID   string    // of the acquire
	Since    time.Time // since when its client has waited without getting the lock, by Redis's clock or, in the wait graph, the client's; zero in a queue
}

// Reader reads locks. It holds no state, and may be shared.
type Reader struct {
	rdb    redis.UniversalClient
	prefix string
}

// New returns a Reader of the locks whose clients have a key prefix, "" for none: what they give to WithKeyPrefix. The client is that of a single server, of
// a Cluster, or a failover client of Sentinels.
func New(rdb redis.UniversalClient, prefix string) (*Reader, error) {
	ok := false
	switch c := rdb.(type) {
	case *redis.Client:
		ok = c != nil
	case *redis.ClusterClient:
		ok = c != nil
	}
	if ok {
		return &Reader{rdb, prefix}, nil
	}
	return nil, fmt.Errorf("%w: the client must be a *redis.Client or a *redis.ClusterClient, not %T", ErrInvalid, rdb)
}

// Look reads one lock, by its name without the key prefix. A lock that is free, and awaited by nobody, has Held and Waiting 0. Of a key that holds something
// else the error matches ErrNotALock.
func (r *Reader) Look(ctx context.Context, name string) (Lock, error) {
	if name == "" { // no lock has it, so "free" would be a wrong answer
		return Lock{}, fmt.Errorf("%w: the lock's name is empty", ErrInvalid)
	}
	key := r.prefix + name
	node, err := r.nodeOf(ctx, key)
	if err != nil {
		return Lock{}, fmt.Errorf("fleet: %q: %w", key, err)
	}
	locks, err := r.read(ctx, node, []string{key}, (*batch).locks, true)
	if errors.Is(err, ErrNotALock) {
		return Lock{}, err
	}
	if err != nil {
		return Lock{}, fmt.Errorf("fleet: %q: %w", key, err)
	}
	locks[0].addWaits(r.lastingWaits(ctx)[name])
	return locks[0], nil
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrInvalid is matched by the error for a client that can't be used, a malformed pattern, or an empty name.
var ErrInvalid = errors.New("fleet: invalid")

// ErrNotALock is matched by the error of Look for a key that holds something other than a lock.
var ErrNotALock = errors.New("fleet: the key holds no lock")

// Kind is the kind of a lock, as far as its keys show it.
type Kind string

// The kinds.
const (
	Mutex     Kind = "mutex"      // Mutex, also of a Multi or a Quorum; Redisson's RLock; or its kind can't be seen
	Fair      Kind = "fair mutex" // FairMutex or Redisson's RFairLock, while somebody waits in its queue
	RW        Kind = "rwmutex"    // RWMutex; Redisson's RReadWriteLock
	Semaphore Kind = "semaphore"  // Semaphore; Redisson's RPermitExpirableSemaphore
	// Number is an UnleasedSemaphore, a Latch, a Semaphore whose permits are all free, or any other number. Only Look
	// finds it.
	Number Kind = "number"
)

// Most is the maximum length of Lock.Holders and of Lock.Waiters.
const Most = 100

// Lock is what a Reader has found out about a lock. The zero value of a field means none, or unknown.
type Lock struct {
	Name    string   // without the key prefix
	Key     string   // in Redis
	Kind    Kind     // as far as its keys show it
	Mode    string   // of an RW: "read" or "write"
	Holders []Holder // at most Most; none for a Semaphore
	Held    int      // number of holders; for a Semaphore, of permits held
	// Available is for a Semaphore the free permits, negative if more are held than it has; for a Number its value.
	Available int
	// Remaining is the rest of the lease, if it isn't renewed. Several leases: the longest. Semaphore: until the next
	// permit runs out. Negative: no end.
	Remaining time.Duration
	Waiters   []Waiter // those known to Redis, at most Most: of a Fair in the order of its queue, otherwise by Since
	Waiting   int      // number of waiters known to Redis
}

// Holder has a lease of a lock.
type Holder struct {
	Owner     string        // as Lease.Owner
	ClientID  string        // as WithClientID, "" for Redisson
	Redisson  bool          // a Redisson client
	Count     int           // how often a Redisson holder has entered; 1 for a lockdog holder
	Mode      string        // of an RW: "read" or "write"
	Token     int64         // of a lockdog client
	Since     time.Time     // when it got the lock, by Redis's clock, as its Token says; zero for Redisson
	TraceID   string        // of the acquire
	SpanID    string        // of the acquire
	Remaining time.Duration // of its lease; negative: it has no end
	Released  bool          // it has released the lock, which lock.WithMinHold keeps taken for Remaining
}

// Waiter waits for a lock.
type Waiter struct {
	Owner    string // of the lease that it wants; "" if Redis knows only its client
	ClientID string // as WithClientID, "" for Redisson, and if Redis knows only a tag of its client
	Redisson bool   // a Redisson client
	TraceID  string // of the acquire
	SpanID   string // of the acquire
	// Since is the start of the wait by the client's clock, if the waiter is from the wait graph. If it is from the
	// wait set of a Mutex, Since is when its client began to wait or last had the lock, by Redis's clock. Zero if it is
	// from the queue of a Fair, or from the waiting writers of an RW.
	Since time.Time
}

// Reader reads locks. It has no mutable state, and may be used concurrently.
type Reader struct {
	rdb     redis.UniversalClient
	single  *redis.Client        // nil: a Cluster
	cluster *redis.ClusterClient // nil: a single server
	prefix  string
}

// New returns a Reader for the locks with a key prefix, the one given to WithKeyPrefix; "" means no prefix. The client
// is one for a single server, a Cluster, or the failover client for Sentinels.
func New(rdb redis.UniversalClient, prefix string) (*Reader, error) {
	r := &Reader{rdb: rdb, prefix: prefix}
	r.single, _ = rdb.(*redis.Client)
	r.cluster, _ = rdb.(*redis.ClusterClient)
	if r.single == nil && r.cluster == nil {
		return nil, fmt.Errorf("%w: the client must be a *redis.Client or a *redis.ClusterClient, not %T", ErrInvalid, rdb)
	}
	return r, nil
}

// Look reads one lock by its name without the key prefix. For a lock without holder and waiters, Held and Waiting are
// 0. If the key holds something other than a lock, the error matches ErrNotALock.
func (r *Reader) Look(ctx context.Context, name string) (Lock, error) {
	if name == "" { // it is no valid name, so the answer "free" would be wrong
		return Lock{}, fmt.Errorf("%w: the lock's name is empty", ErrInvalid)
	}
	key := r.prefix + name
	node, err := r.nodeOf(ctx, key)
	if err != nil {
		return Lock{}, fmt.Errorf("fleet: %q: %w", key, err)
	}
	locks, err := r.read(ctx, node, []string{key}, true, (*batch).hash, (*batch).number)
	if errors.Is(err, ErrNotALock) {
		return Lock{}, err
	}
	if err != nil {
		return Lock{}, fmt.Errorf("fleet: %q: %w", key, err)
	}
	locks[0].addWaits(r.lastingWaits(ctx)[name])
	return locks[0], nil
}

package lock

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	minNodes = 3

	// A node has a tenth of the lease to answer, and a second at most.
	nodePatience    = 10
	maxNodePatience = time.Second
)

// nodeTimeout is how long one node is waited for.
func nodeTimeout(lease time.Duration) time.Duration { return min(lease/nodePatience, maxNodePatience) }

// quorumKind is that of a lock at one node: a Mutex, but for what it is called.
var quorumKind = func() *kind {
	k := *mutexKind
	k.name = "quorum"
	return &k
}()

// Quorum takes locks at the majority of several Redis servers that know nothing of each other: the Redlock algorithm.
//
// # What it gives
//
// A lock is held by whoever holds it, as a Mutex, at more than half of the nodes. So it outlives the loss of any minority of them, without
// replication, whose failovers can lose a lock that was granted: of three nodes one may be gone, of five two.
//
//   - All nodes are asked at once, each for a tenth of the lease at most, and for a second at most. The lock is had as soon as a majority
//     has granted it; the others join when they answer. A node that is down costs nothing as long as a majority answers, but for the first
//     call to find it so while others contend. A first call also connects: over a network the lease has to be of 60 round trips or more.
//   - The lease is trusted as each of its members is: from before the request, less the margin for clocks that run apart. Its Deadline is that until
//     which a majority is trusted. Each client renews at its own node; one that is lost costs nothing until the majority is.
//   - A call without a majority gives back what it got, also at nodes whose answer is yet to come.
//   - Tokens rise from grant to grant: the largest that any of the majority gave, which is then written back to a majority. A grant
//     takes that second round trip, and fails without it.
//
// # What it doesn't give
//
// It is no consensus. As each Mutex does, it rests on the clocks of the nodes and of the holder running at about the same rate, and on a
// holder that stops when its lease ends. A server that is restarted with less than it had granted - without persistence, or with appendfsync other
// than always - may grant a lock again while it is held, and with it make another majority: let such a server stay down for the longest lease
// before it is used again.
//
// Whether that is good enough has been argued. Martin Kleppmann ("How to do distributed locking", 2016) holds that an algorithm whose safety
// depends on timing doesn't do where correctness depends on the lock: a process may pause, or a packet be delayed, for longer than any lease, and
// clocks jump; that such uses want a fencing token that the protected resource checks; and that where locks only save work one Redis
// is enough. Salvatore Sanfilippo, Redlock's author, ("Is Redlock safe?", 2016) holds that it needs no synchronized
// clocks but only such as run at about the same rate, which can be had; that a holder that checks what time is left, after it has the lock, is as safe as with any
// lock that ends by itself; and that a resource that can check tokens hardly needs the lock. The first advice holds either way: protect
// data by Lease.Token, and use the lock to save work.
//
// # Its nodes
//
// All users of a lock must have the same set of nodes. To change it, add or remove one at a time, everywhere, before the next: the majorities of sets that
// differ by one node have one in common, those of three and five nodes need not. That is what an even number of nodes is good for; it survives
// no more losses than one less does.
type Quorum struct {
	clients []*Client
	need    int
	silent  []atomic.Bool // the nodes that couldn't be reached when last asked

	mu     sync.Mutex
	queues map[string]*quorumQueue // by key
}

// NewQuorum returns a Quorum over these clients, each of another server, which is to be independent of the others; at least three.
// It does no I/O. The error, matching ErrInvalid, says what is wrong with them.
//
// The clients stay the program's, to be used otherwise and to be closed.
func NewQuorum(clients ...*Client) (*Quorum, error) {
	if len(clients) < minNodes {
		return nil, fmt.Errorf("%w: NewQuorum of %d clients: at least %d are needed, or no node may be lost", ErrInvalid, len(clients), minNodes)
	}
	seen, at := make(map[*Client]int), make(map[string]int)
	for i, c := range clients {
		if c == nil || c.backend == nil {
			return nil, fmt.Errorf("%w: NewQuorum: client %d is nil, or not made by New", ErrInvalid, i)
		}
		if other, ok := seen[c]; ok {
			return nil, fmt.Errorf("%w: NewQuorum: clients %d and %d are the same; each must be of a server of its own", ErrInvalid, other, i)
		}
		seen[c] = i
		addr := c.backend.Node("")
		if _, _, err := net.SplitHostPort(addr); err != nil {
			continue // of a cluster, or behind Sentinel
		}
		if other, ok := at[addr]; ok {
			return nil, fmt.Errorf("%w: NewQuorum: clients %d and %d are both of the server %s; each must be of one of its own", ErrInvalid, other, i, addr)
		}
		at[addr] = i
	}
	q := &Quorum{
		clients: append([]*Client(nil), clients...), need: len(clients)/2 + 1,
		silent: make([]atomic.Bool, len(clients)), queues: make(map[string]*quorumQueue),
	}
	return q, nil
}

// QuorumMutex describes a lock that is held at a majority of a Quorum's nodes. It holds no state; taking it gives a Lease. At each node it is
// a Mutex, renewed by that node's client, as kind "quorum". It is counted once, by the first client; each node has spans of its own, with
// lockdog.node, as children of the lock's.
type QuorumMutex struct {
	lock  // what its nodes have in common
	q     *Quorum
	locks []lock // by node
}

var _ Locker = (*QuorumMutex)(nil)

// Mutex describes the lock with a name. It does no I/O and never fails: what is wrong with the name or the options
// is the error, matching ErrInvalid, of the first use. The leases must be the same at all nodes: give options that the clients
// disagree on here.
func (q *Quorum) Mutex(name string, opts ...LockOption) *QuorumMutex {
	m := &QuorumMutex{lock: lock{name: name, kind: quorumKind}, q: q}
	if q == nil || len(q.clients) == 0 {
		m.err = fmt.Errorf("%w: lock %q: the Quorum is nil; make one with NewQuorum", ErrInvalid, name)
		return m
	}
	m.locks = make([]lock, len(q.clients))
	for i, c := range q.clients {
		m.locks[i] = c.describe(quorumKind, name, opts)
		if m.err == nil {
			m.err = m.locks[i].err
		}
		if m.err != nil {
			continue
		}
		m.locks[i].tel = m.locks[i].tel.Member(m.locks[i].node)
		if first, cfg := m.locks[0].cfg, m.locks[i].cfg; cfg.lease != first.lease || cfg.fixed != first.fixed {
			m.err = fmt.Errorf("%w: lock %q: the clients of the Quorum have different leases, %v and %v; give WithWatchdog or WithFixedLease to Quorum.Mutex",
				ErrInvalid, name, first.lease, cfg.lease)
		}
	}
	m.c, m.key, m.cfg = m.locks[0].c, m.locks[0].key, m.locks[0].cfg
	return m
}

// TryLock takes the lock if a majority of the nodes grants it. It doesn't wait: it fails with a *HeldError, matching ErrHeld, if a majority
// has answered; else with what became of each node.
//
// Other errors are those of Mutex.TryLock; it matches ErrClosed when too few of the clients are open.
func (m *QuorumMutex) TryLock(ctx context.Context) (*Lease, error) { return m.take(ctx, false) }

// Lock takes the lock, waiting for it until ctx ends or WithWait is over. It asks again when a majority of the nodes may have the lock
// free: a release at a node was heard of, or the lease seen there has run out; after a pause of random length, so
// that of several processes one is first. In one process waiters are served in the order they came. While no majority
// answers, it asks twice a second, for one lease.
//
// Else it is as Mutex.Lock.
func (m *QuorumMutex) Lock(ctx context.Context) (*Lease, error) { return m.take(ctx, true) }

// Do runs fn under the lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *QuorumMutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m, fn)
}

// TryDo is Do if the lock can be had at once. If not, it fails as TryLock does, and doesn't call fn.
func (m *QuorumMutex) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m, fn)
}

// take is Lock and TryLock.
func (m *QuorumMutex) take(ctx context.Context, wait bool) (*Lease, error) {
	if m == nil {
		return nil, (*lock)(nil).takeable(ctx)
	}
	if err := m.takeable(ctx); err != nil {
		return nil, err
	}
	ctx, stop := m.bounded(ctx)
	defer stop()
	t := newQuorumTry(ctx, m)
	l, err := t.rejoin()
	if l == nil && err == nil {
		if wait {
			l, err = t.lock()
		} else {
			l, err = t.once()
		}
	}
	if err != nil {
		return nil, m.wrap("acquire", err)
	}
	return l, nil
}

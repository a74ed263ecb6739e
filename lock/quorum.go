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

	// A node must answer within a tenth of the lease, and within a second.
	nodeTimeoutsPerLease = 10
	maxNodeTimeout       = time.Second
)

// nodeTimeout returns how long one node may take to answer while a lock is being acquired. When a majority has released
// the lock, the other nodes have as long to answer the release.
func nodeTimeout(lease time.Duration) time.Duration {
	return min(lease/nodeTimeoutsPerLease, maxNodeTimeout)
}

// quorumKind is the kind of a lock at one node: a Mutex with another name.
var quorumKind = func() *kind {
	k := mutexKind.named("quorum")
	k.ofOneNode = true
	return k
}()

// Quorum takes locks at the majority of several independent Redis servers: the Redlock algorithm.
//
// # What it guarantees
//
// A caller has the lock if it holds it, as a Mutex, at more than half of the nodes. So the lock survives the loss of
// any minority of them: one of three nodes, two of five. It needs no replication, whose failovers can lose a lock that
// was granted.
//
//   - All nodes are asked at once. Each has a tenth of the lease to answer, a second at most. The lock is acquired as
//     soon as a majority has granted it; the other nodes join when they answer. A node that is down costs nothing as
//     long as a majority answers, with one exception: the first call that gets some of the nodes, while rivals get the
//     others, waits for it until that timeout. A first call also connects: over a network, the lease must be at least
//     60 round trips long.
//   - Each node's lease counts from just before the request, and is trusted until its end, less a margin for clock
//     drift. The Deadline is the time until which a majority is trusted. Each client renews at its own node. Losing a
//     node has no effect while a majority is left.
//   - A call without a majority releases what it was granted, also at nodes that answer later.
//   - Tokens rise from grant to grant. The token is the largest one of the majority, which is then written back to a
//     majority. A grant takes that second round trip, and fails without it.
//
// # What it doesn't guarantee
//
// It isn't consensus. Like a Mutex, it relies on the clocks of the nodes and of the holder running at about the same
// rate, and on holders that stop when their lease ends. A server that restarts with less than it had granted - without
// persistence, or with an appendfsync other than always - may grant a held lock again, and so complete a second
// majority. Keep such a server down for the longest lease before you use it again.
//
// Whether that is good enough is disputed. Martin Kleppmann ("How to do distributed locking", 2016) argues that an
// algorithm whose safety depends on timing is not enough where correctness depends on the lock: a process may pause, or
// a packet may be delayed, for longer than any lease, and clocks jump. Such uses need a fencing token that the
// protected resource checks; where locks only save work, one Redis is enough. Salvatore Sanfilippo, the author of
// Redlock, ("Is Redlock safe?", 2016) argues that it needs clocks that run at about the same rate, not synchronized
// ones, and that this is achievable; that a holder that checks the remaining time after it got the lock is as safe as
// with any lock that expires; and that a resource that can check tokens hardly needs the lock. In both views: protect
// data by Lease.Token, and use the lock to save work.
//
// # Its nodes
//
// All users of a lock must have the same set of nodes. To change it, add or remove one node at a time, everywhere,
// before the next: majorities of sets that differ by one node overlap, those of a set of three and a set of five need
// not. Use an even number of nodes only while you change the set: the lock then survives no more losses than with one
// node less.
type Quorum struct {
	clients []*Client
	need    int
	silent  []atomic.Bool // by node: when last asked, it couldn't be reached, or didn't answer in time

	mu     sync.Mutex
	queues map[string]*quorumQueue // by key
}

// NewQuorum returns a Quorum over at least three clients, each of a different, independent server. It does no I/O. The
// error matches ErrInvalid.
//
// The program still owns the clients: it may use them for other locks, and it closes them.
func NewQuorum(clients ...*Client) (*Quorum, error) {
	if len(clients) < minNodes {
		return nil, fmt.Errorf("%w: NewQuorum of %d clients: at least %d are needed, or no node may be lost",
			ErrInvalid, len(clients), minNodes)
	}
	seen, at := make(map[*Client]int), make(map[string]int)
	for i, c := range clients {
		if c == nil || c.backend == nil {
			return nil, fmt.Errorf("%w: NewQuorum: client %d is nil, or not made by New", ErrInvalid, i)
		}
		if other, ok := seen[c]; ok {
			return nil, fmt.Errorf("%w: NewQuorum: clients %d and %d are the same; each must be of a server of its own",
				ErrInvalid, other, i)
		}
		seen[c] = i
		addr := c.backend.Node("")
		if _, _, err := net.SplitHostPort(addr); err != nil {
			continue // no address: of a cluster, or behind Sentinel
		}
		if other, ok := at[addr]; ok {
			return nil, fmt.Errorf("%w: NewQuorum: clients %d and %d are both of the server %s; each must be of one of its own",
				ErrInvalid, other, i, addr)
		}
		at[addr] = i
	}
	q := &Quorum{
		clients: append([]*Client(nil), clients...), need: len(clients)/2 + 1,
		silent: make([]atomic.Bool, len(clients)), queues: make(map[string]*quorumQueue),
	}
	return q, nil
}

// QuorumMutex describes a lock that is held at a majority of a Quorum's nodes. It holds no state; taking it returns a
// Lease. At each node it is a Mutex, renewed by that node's client, as kind "quorum". It is counted once, by the first
// client. Each node has its own spans, with lockdog.node, as children of the lock's spans.
type QuorumMutex struct {
	lock  // what the nodes share
	q     *Quorum
	locks []lock // by node
}

var _ Locker = (*QuorumMutex)(nil)

// Mutex describes the lock with a name. It does no I/O and never fails: if the name or the options are invalid, the
// first use returns an error that matches ErrInvalid. All nodes must have the same lease and takeover delay, and
// WithLifetime or not: if the clients' options differ, set them here.
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
		first, cfg := m.locks[0].cfg, m.locks[i].cfg
		switch {
		case (cfg.leaseCtx == nil) != (first.leaseCtx == nil):
			m.err = fmt.Errorf("%w: lock %q: some clients of the Quorum have WithLifetime, and others don't; give it to Quorum.Mutex",
				ErrInvalid, name)
		case cfg.lease != first.lease, cfg.fixed != first.fixed, cfg.takeoverDelay != first.takeoverDelay:
			m.err = fmt.Errorf("%w: lock %q: the clients of the Quorum have different leases, %v and %v, or takeover delays, %v and %v; give WithLease or WithFixedLease, and WithTakeoverDelay, to Quorum.Mutex",
				ErrInvalid, name, first.lease, cfg.lease, first.takeoverDelay, cfg.takeoverDelay)
		}
	}
	m.c, m.key, m.cfg = m.locks[0].c, m.locks[0].key, m.locks[0].cfg
	return m
}

// TryLock takes the lock if a majority of the nodes grants it and confirms its token. Otherwise it fails, without
// waiting for the lock. If a majority has answered, but too few have granted it, the error is a *HeldError, which
// matches ErrHeld. If too few have answered, or no token was confirmed, the error says what failed at which node.
//
// Other errors are those of Mutex.TryLock. The error matches ErrClosed if too few of the clients are open.
func (m *QuorumMutex) TryLock(ctx context.Context) (*Lease, error) { return m.take(ctx, false) }

// Lock takes the lock. It waits for it until ctx ends or WithWait is over. It asks again when the lock may be free at a
// majority of the nodes: a node has published a release, or the lease seen there has expired. Before it asks again, it
// pauses for a random time, so that one of several rivals is the first. The waiters of one Quorum are served in order.
// While no majority answers, it asks once or twice a second, and fails after one lease.
//
// Otherwise it is like Mutex.Lock.
func (m *QuorumMutex) Lock(ctx context.Context) (*Lease, error) { return m.take(ctx, true) }

// Do runs fn under the lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *QuorumMutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m, fn)
}

// TryDo is Do if the lock can be taken at once. If not, it fails as TryLock does, and doesn't call fn.
func (m *QuorumMutex) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m, fn)
}

// Inspect returns the holder of the lock at each node, by the node's address. Only a caller that holds it at a majority
// of the nodes has the lock. A holder's owner differs from node to node; its token is the same at a majority, once the
// grant is complete. If some requests fail, the result has the other nodes, and the error says which failed.
func (m *QuorumMutex) Inspect(ctx context.Context) (map[string]Holder, error) {
	if err := m.base().usable(ctx, "inspect"); err != nil {
		return nil, err
	}
	found, errs := inspectEach(ctx, m.locks, (*lock).node)
	return found, joinAtNodes(m.locks, errs)
}

// ForceUnlock frees the lock at every node, as Mutex.ForceUnlock does, and reports whether it was held at any. If that
// fails at some nodes, the error says at which; the lock is free at the others.
func (m *QuorumMutex) ForceUnlock(ctx context.Context) (bool, error) {
	if err := m.base().usable(ctx, "force unlock"); err != nil {
		return false, err
	}
	was, errs := forceUnlockEach(ctx, m.locks, callerOf())
	return was, joinAtNodes(m.locks, errs)
}

func (m *QuorumMutex) base() *lock {
	if m == nil {
		return nil
	}
	return &m.lock
}

// take is Lock if wait is set, otherwise TryLock.
func (m *QuorumMutex) take(ctx context.Context, wait bool) (*Lease, error) {
	if err := m.base().takeable(ctx); err != nil {
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

package locktest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/memory"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// Thief is the owner that Lose with lock.CauseTaken gives the lock to.
const Thief = "locktest/thief"

// closeGrace is how long the end of the test waits for leases that are not released.
const closeGrace = time.Second

// Server is a Redis in memory, as far as locks need one, and the clients made for it. Names given to it are
// those of the keys: with the prefix, where lock.WithKeyPrefix sets one.
//
// It is safe for concurrent use, but what fails ends the test, so Hold and Lose are for the test's own
// goroutine.
type Server struct {
	t      testing.TB
	opts   []lock.Option
	memory *memory.Server

	mu      sync.Mutex
	first   *lock.Client
	clients []*lock.Client
}

// New returns an empty server. The options are the defaults of all its clients. Close is called when the test
// ends.
//
// t may be nil, as in an Example: then the caller calls Close, and what would fail the test panics.
func New(t testing.TB, opts ...lock.Option) *Server {
	s := &Server{t: t, opts: opts, memory: memory.New()}
	if t != nil {
		t.Helper()
		t.Cleanup(s.Close)
	}
	return s
}

// Client returns the server's first client, always the same.
func (s *Server) Client() *lock.Client {
	s.helper()
	s.mu.Lock()
	c := s.first
	s.mu.Unlock()
	if c != nil {
		return c
	}
	c = s.NewClient()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = c
	}
	return s.first
}

// NewClient returns another client, as another process would have one. Its options come after those given to
// New. Options that lock.New refuses fail the test.
func (s *Server) NewClient(opts ...lock.Option) *lock.Client {
	s.helper()
	c, err := lock.New(provider{backend: s.memory.Backend()}, slices.Concat(s.opts, opts)...)
	if err != nil {
		s.fatalf("locktest: NewClient: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

// provider is what makes lock.New use the memory. The client in it is nil: nothing calls it.
type provider struct {
	redis.UniversalClient
	backend backend.Backend
}

// LockdogBackend implements backend.Provider.
func (p provider) LockdogBackend() backend.Backend { return p.backend }

// Close closes all clients. Leases that live yet have a second to be released; what is left then is said in the test's
// log, and fails nothing.
func (s *Server) Close() {
	s.mu.Lock()
	clients := s.clients
	s.clients = nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	var closing sync.WaitGroup
	for _, c := range clients {
		closing.Go(func() {
			if err := c.Close(ctx); err != nil && s.t != nil {
				s.t.Logf("locktest: %v", err)
			}
		})
	}
	closing.Wait()
}

// Hold has an owner outside this process hold the lock with a name, until the function it returns is called: that
// releases the lock and wakes who waits for it. A second call does nothing. Meanwhile the lock looks like one that is renewed all the
// time: lock.DefaultLease is left of its lease.
//
// Holding a lock that is held already fails the test.
func (s *Server) Hold(name, owner string) (release func()) {
	s.helper()
	if name == "" || owner == "" {
		s.fatalf("locktest: Hold(%q, %q): a name and an owner are needed", name, owner)
	}
	if !s.memory.Keep(name, owner, lock.DefaultLease) {
		s.fatalf("locktest: Hold(%q, %q): it is held by %q", name, owner, s.memory.Holder(name))
	}
	return func() { s.memory.Release(name, owner, script.Channel(name)) }
}

// Lose has the holder of the lock with a name lose it. It returns at once; wait for Lease.Done.
//
//   - lock.CauseMissing: the lock is gone, as if it had been deleted or evicted.
//   - lock.CauseTaken: it is Thief's, for what was left of the lease.
//   - lock.CauseUnreachable: every renewal of the lease fails from now on, so that it ends at its Deadline, at most one
//     lease from now. Other leases are renewed. For all of them see FailRenewals.
//
// The holder of a missing or taken lock is told to look, and finds out at once instead of at its next
// renewal. A lease that is not renewed (lock.WithFixedLease, or one that was canceled) doesn't look: such a holder learns of it from
// Release, or loses the lease as expired, and CauseUnreachable changes nothing for it.
//
// lock.CauseExpired can't be had by asking: take the lock with lock.WithFixedLease and let it run out. Nor can
// lock.CauseStalled, which takes a process that stands still. These two, any other cause, and a lock that no client of this server holds,
// fail the test.
func (s *Server) Lose(name string, cause lock.Cause) {
	s.helper()
	owner := s.memory.Holder(name)
	if owner == "" {
		s.fatalf("locktest: Lose(%q, %s): nobody holds it", name, cause)
	}
	if !s.ours(owner) {
		s.fatalf("locktest: Lose(%q, %s): it is held by %q, no client of this server", name, cause, owner)
	}
	switch cause {
	case lock.CauseMissing:
		s.memory.Del(name)
		s.memory.Notify(owner)
	case lock.CauseTaken:
		s.memory.Take(name, Thief)
		s.memory.Notify(owner)
	case lock.CauseUnreachable:
		s.memory.CutOff(name, owner)
	case lock.CauseExpired:
		s.fatalf("locktest: Lose(%q, %s): take the lock with lock.WithFixedLease and let the lease run out", name, cause)
	case lock.CauseStalled:
		s.fatalf("locktest: Lose(%q, %s): it takes a process that stands still, which can't be had in a test", name, cause)
	case lock.CauseForced:
		s.fatalf("locktest: Lose(%q, %s): call ForceUnlock of another client", name, cause)
	default:
		s.fatalf("locktest: Lose(%q, %q): missing, taken and unreachable are possible", name, cause)
	}
}

// ours says whether an owner is a lease of one of the server's clients.
func (s *Server) ours(owner string) bool {
	s.mu.Lock()
	clients := slices.Clone(s.clients)
	s.mu.Unlock()
	return slices.ContainsFunc(clients, func(c *lock.Client) bool {
		return slices.ContainsFunc(c.Leases(), func(l lock.LeaseInfo) bool {
			return l.Owner == owner && l.State != lock.StateWaiting
		})
	})
}

// FailRenewals has every renewal of every client fail with err, until it is called with nil. Acquires and releases
// go on working. Leases that are not renewed before their Deadline are lost as lock.CauseUnreachable.
func (s *Server) FailRenewals(err error) { s.memory.FailRenewals(err) }

func (s *Server) helper() {
	if s.t != nil {
		s.t.Helper()
	}
}

func (s *Server) fatalf(format string, args ...any) {
	if s.t == nil {
		panic(fmt.Sprintf(format, args...))
	}
	s.t.Helper()
	s.t.Fatalf(format, args...)
}

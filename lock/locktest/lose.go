package locktest

import (
	"fmt"
	"slices"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// semaphoreKind is lock.LeaseInfo.Kind of the leases of a Semaphore.
const semaphoreKind = "semaphore"

// Lose makes all holders of a lock lose it: the single holder, all readers of an RWMutex, or all holders of a
// Semaphore's permits. For a Multi, pass one of its names. For a Quorum, call it on a majority of its servers. It
// doesn't wait for the loss: wait for Lease.Ended.
//
//   - lock.CauseMissing: the key is gone, as after a DEL or an eviction. A Semaphore has no permits then, until the
//     program gives it some, as with EnsurePermits.
//   - lock.CauseTaken: Thief holds the lock for the rest of the lease, as its writer if it is an RWMutex. This fails
//     the test for a Semaphore: nobody can take a permit away.
//   - lock.CauseUnreachable: every renewal of the lease fails from now on. So the lease ends at its Deadline, at most
//     one lease from now. Other leases are renewed; FailRenewals is for all leases.
//
// The holder of a missing or taken lock gets a message, so it detects the loss at once instead of at its next renewal.
// The holder of a permit gets none, because ForceUnlock doesn't work for permits. A lease that isn't renewed
// (lock.WithFixedLease, or a canceled lease) isn't checked: its holder learns of the loss from Release, or the lease
// expires. CauseUnreachable has no effect on it.
//
// Other causes fail the test, and so does a lock that no client of this server holds. An UnleasedSemaphore and a Latch
// have no leases, so nobody holds them. For lock.CauseExpired, acquire the lock with lock.WithFixedLease and let the
// lease run out. For lock.CauseForced, call ForceUnlock of another client. lock.CauseStalled needs a stopped process.
func (s *Server) Lose(name string, cause lock.Cause) {
	s.helper()
	held := s.held(name)
	if len(held) == 0 {
		s.fatalf("locktest: Lose(%q, %s): %s", name, cause, s.notHeld(name))
	}
	permits := held[0].kind == script.HoldsPermit
	switch {
	case cause == lock.CauseMissing && permits: // no message: for permits there is none
		s.fake.Del(name)
		s.fake.Del(held[0].key)
		return
	case cause == lock.CauseMissing:
		s.fake.Del(name)
	case cause == lock.CauseTaken && permits:
		s.fatalf(
			"locktest: Lose(%q, %s): a permit has no place that another could take: missing and unreachable are possible",
			name, cause)
	case cause == lock.CauseTaken:
		s.eval(takeIt, name, Thief)
	case cause == lock.CauseUnreachable:
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, h := range held {
			s.cutOff[h.place] = true
		}
		return
	default:
		s.fatalf("locktest: Lose(%q, %q): %s", name, cause, insteadOf(cause))
	}
	for _, h := range held {
		s.fake.Publish(s.listens(h.owner), h.owner)
	}
}

// insteadOf says how to get a cause that Lose doesn't support.
func insteadOf(cause lock.Cause) string {
	switch cause {
	case lock.CauseExpired:
		return "take the lock with lock.WithFixedLease and let the lease run out"
	case lock.CauseStalled:
		return "it takes a process that stands still, which can't be had in a test"
	case lock.CauseForced:
		return "call ForceUnlock of another client"
	default:
		return "missing, taken and unreachable are possible"
	}
}

// place is where Redis stores an owner: a field of a hash, or a member of a sorted set.
type place struct{ key, member string }

// hold is the entry in Redis of a lease of one of the server's clients.
type hold struct {
	place
	owner string
	kind  script.Holding
}

// held returns the holds of a lock by the server's clients.
func (s *Server) held(name string) (held []hold) {
	s.mu.Lock()
	clients := slices.Clone(s.clients)
	s.mu.Unlock()
	for _, c := range clients {
		for _, l := range c.Leases() {
			if l.State == lock.StateWaiting {
				continue
			}
			kind := script.HoldsField
			if l.Kind == semaphoreKind {
				kind = script.HoldsPermit
			}
			h := hold{place{kind.Key(name), kind.StoredOwner(l.Owner)}, l.Owner, kind}
			if s.holds(h.place) {
				held = append(held, h)
			}
		}
	}
	return held
}

// notHeld says why no client of the server can lose a lock.
func (s *Server) notHeld(name string) string {
	owner := s.holder(name)
	switch {
	case owner != "":
		return fmt.Sprintf("it is held by %q, no client of this server", owner)
	case s.fake.Exists(name):
		return "no lease of it is held; an UnleasedSemaphore and a Latch have none"
	default:
		return "nobody holds it"
	}
}

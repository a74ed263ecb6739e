package locktest

import (
	"fmt"
	"slices"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// semaphoreKind is lock.LeaseInfo.Kind of the leases of a Semaphore.
const semaphoreKind = "semaphore"

// Lose makes all who hold a lock lose it: one holder, or all readers of an RWMutex, or all who have a permit of a Semaphore. Of a Multi, give one
// of its names; of a Quorum, Lose it at one of its servers. It returns at once; wait for Lease.Ended.
//
//   - lock.CauseMissing: the lock is gone, as if it had been deleted or evicted. A Semaphore has lost its permits with it, until
//     EnsurePermits gives it some.
//   - lock.CauseTaken: Thief holds it, for the rest of the lease; an RWMutex as its writer. It fails the test for a Semaphore, whose permits
//     nobody can take away.
//   - lock.CauseUnreachable: every renewal of the lease fails from now on, so that it ends at its Deadline, at most one
//     lease from now. Other leases are renewed. For all of them see FailRenewals.
//
// The holder of a missing or taken lock is notified, and detects the loss at once instead of at its next
// renewal; that of a permit isn't, as no ForceUnlock takes permits away. A lease that is not renewed (lock.WithFixedLease, or one that was
// canceled) is not checked: its holder learns of the loss from Release, or the lease expires, and CauseUnreachable has no effect.
//
// Other causes fail the test, and so does a lock that no client of this server holds: also an UnleasedSemaphore and a Latch, which have no
// leases. For lock.CauseExpired, acquire the lock with lock.WithFixedLease and let it run out. For lock.CauseForced, call ForceUnlock of another
// client. lock.CauseStalled needs a process that stands still.
func (s *Server) Lose(name string, cause lock.Cause) {
	s.helper()
	held := s.held(name)
	if len(held) == 0 {
		s.fatalf("locktest: Lose(%q, %s): %s", name, cause, s.notHeld(name))
	}
	permits := held[0].kind == script.HoldsPermit
	switch {
	case cause == lock.CauseMissing && permits: // whose holders listen to nobody
		s.fake.Del(name)
		s.fake.Del(held[0].key)
		return
	case cause == lock.CauseMissing:
		s.fake.Del(name)
	case cause == lock.CauseTaken && permits:
		s.fatalf("locktest: Lose(%q, %s): a permit has no place that another could take: missing and unreachable are possible", name, cause)
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

// insteadOf says how to have a cause that isn't one of Lose.
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

// place is where Redis has what stands for an owner.
type place struct{ key, member string }

// hold is what a lease of one of the server's clients is in Redis.
type hold struct {
	place
	owner string
	kind  script.Holding
}

// held returns the holds of a name that the server's clients have.
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
			h := hold{place{kind.Key(name), kind.Member(l.Owner)}, l.Owner, kind}
			if s.holds(h.place) {
				held = append(held, h)
			}
		}
	}
	return held
}

// notHeld says why no client of the server can lose a name.
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

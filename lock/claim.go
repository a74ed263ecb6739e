package lock

import (
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/waitset"
	"github.com/lockdog/lockdog/telemetry"
)

// claim is one owner's request for a lock. All calls that ask for the lock under this owner share it.
type claim struct {
	lock        *lock
	owner       string
	traceparent string
	lateWrite   atomic.Pointer[time.Time] // until when a call without a reply may take the lock; nil: no reply was lost
	waitEntry   atomic.Pointer[string]    // its entry that the wait set may have; nil: none
	update      *counterUpdate            // what it does to a counter, instead of asking for a lock; nil for most
}

// newClaim returns a claim with an owner that no other claim has had.
func (lk *lock) newClaim(a *telemetry.Acquire) *claim {
	cl := &claim{lock: lk, owner: lk.c.newOwner() + lk.kind.ownerSuffix}
	if lk.cfg.links {
		cl.traceparent = a.Traceparent()
	}
	return cl
}

// noteLateWrite notes that a call of the claim, whose reply was lost, may take the lock at any time up to until. It is
// safe for concurrent use.
func (cl *claim) noteLateWrite(until time.Time) {
	for {
		old := cl.lateWrite.Load()
		if old != nil && !until.After(*old) || until.IsZero() || cl.lateWrite.CompareAndSwap(old, &until) {
			return
		}
	}
}

// lateWriteUntil returns the time after which no call of the claim can take the lock, provided that the server's clock
// was known when the call was sent (dispatch.Clock). It is zero if no reply was lost.
func (cl *claim) lateWriteUntil() time.Time {
	if until := cl.lateWrite.Load(); until != nil {
		return *until
	}
	return time.Time{}
}

// hadLostReply reports whether the reply to a call of the claim was lost. Unless lateWriteUntil is over, that call may
// still take the lock.
func (cl *claim) hadLostReply() bool { return cl.lateWrite.Load() != nil }

// Owner implements waitset.Claim.
func (cl *claim) Owner() string { return cl.owner }

// Traceparent implements waitset.Claim.
func (cl *claim) Traceparent() string { return cl.traceparent }

// WaitEntry implements waitset.Claim.
func (cl *claim) WaitEntry() string {
	if e := cl.waitEntry.Load(); e != nil {
		return *e
	}
	return ""
}

// SetWaitEntry implements waitset.Claim.
func (cl *claim) SetWaitEntry(entry string) {
	if entry == "" {
		cl.waitEntry.Store(nil)
		return
	}
	cl.waitEntry.Store(&entry)
}

// GiveBack implements waitset.Claim.
func (cl *claim) GiveBack() { cl.cleanUp() }

// mayBeGranted reports whether a release may grant the lock to the claim: the wait set may have an entry for it.
func (cl *claim) mayBeGranted() bool { return waitset.MayBeGranted(cl.WaitEntry()) }

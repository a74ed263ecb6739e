package lock

import (
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/waitset"
	"github.com/lockdog/lockdog/telemetry"
)

// claim is one owner's request for a lock or, with an update, for the change of a counter. All calls that make the
// request for this owner share the claim, except those of the cleanup, which has a copy.
type claim struct {
	lock        *lock
	owner       string
	traceparent string
	lateWrite   atomic.Pointer[time.Time] // see noteLateWrite; nil: it noted no call
	waitEntry   atomic.Pointer[string]    // see waitset.Claim.WaitEntry; nil: none
	update      *counterUpdate            // the change of a counter, instead of the request for a lock; nil for most
}

// newClaim returns a claim with an owner that no other claim has had.
func (lk *lock) newClaim(a *telemetry.Acquire) *claim {
	cl := &claim{lock: lk, owner: lk.c.newOwner() + lk.kind.ownerSuffix}
	if lk.cfg.links {
		cl.traceparent = a.Traceparent()
	}
	return cl
}

// noteLateWrite notes that a call whose reply was lost, or can't be read, may take the lock for the claim, or make its
// update, until the given time. Of several such times the latest counts. A zero time is ignored. The call may be a
// release that hands the lock over to the claim. noteLateWrite is safe for concurrent use.
func (cl *claim) noteLateWrite(until time.Time) {
	for {
		old := cl.lateWrite.Load()
		if old != nil && !until.After(*old) || until.IsZero() || cl.lateWrite.CompareAndSwap(old, &until) {
			return
		}
	}
}

// lateWriteUntil returns the time after which no delayed call can take the lock for the claim, or make its update,
// provided that the server's clock was known when the call was sent (dispatch.Clock). It is zero if noteLateWrite noted
// no call.
func (cl *claim) lateWriteUntil() time.Time {
	if until := cl.lateWrite.Load(); until != nil {
		return *until
	}
	return time.Time{}
}

// hadLostReply reports whether noteLateWrite noted a call. That call may have taken the lock, or may still take it
// until lateWriteUntil.
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

// mayBeGranted reports whether a release may grant the lock to the claim: whether its wait entry has an owner.
func (cl *claim) mayBeGranted() bool { return waitset.MayBeGranted(cl.WaitEntry()) }

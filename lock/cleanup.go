package lock

import (
	"context"
	"time"

	"github.com/lockdog/lockdog/lock/internal/cleanup"
	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// What a claim may have left in Redis, and when it is removed.

// noteLateWrite notes that a call of the claim whose reply was lost may still take the lock until then. It is safe for concurrent use.
func (cl *claim) noteLateWrite(until time.Time) {
	for {
		old := cl.lateWrite.Load()
		if old != nil && !until.After(*old) || until.IsZero() || cl.lateWrite.CompareAndSwap(old, &until) {
			return
		}
	}
}

// lateWriteUntil returns the time after which no call of the claim can take the lock any more; zero if no reply was lost.
func (cl *claim) lateWriteUntil() time.Time {
	if until := cl.lateWrite.Load(); until != nil {
		return *until
	}
	return time.Time{}
}

// mayWriteLate reports whether the reply to a call of the claim was lost.
func (cl *claim) mayWriteLate() bool { return cl.lateWrite.Load() != nil }

// cleanUp removes what the claim may have left, now and once more when no delayed call of it can write.
func (cl *claim) cleanUp() {
	cl.scheduleCleanup(&cleanup.Task{Due: time.Now(), LateWriteUntil: cl.lateWriteUntil()})
}

// undo removes a grant that nobody is to have. It returns when the lock is free again, or Redis hasn't said so within a second: then that
// is left to cleanUp.
func (cl *claim) undo() {
	ctx := telemetry.Untraced(context.Background())
	if _, err := cl.lock.c.ops.releaseOnce(ctx, cl, cleanup.Timeout, false); err != nil || cl.mayWriteLate() {
		cl.cleanUp()
	}
}

// cleanUpOnce removes it now, and not once more: no call of the claim is under way that could write it again.
func (cl *claim) cleanUpOnce() { cl.cleanUpAfter(0) }

// cleanUpAfter is cleanUpOnce, a while later.
func (cl *claim) cleanUpAfter(wait time.Duration) {
	cl.scheduleCleanup(&cleanup.Task{Due: time.Now().Add(wait)})
}

// cleanUpLater removes what a delayed call of the claim may still write.
func (cl *claim) cleanUpLater() {
	until := cl.lateWriteUntil()
	cl.scheduleCleanup(&cleanup.Task{Due: until, LateWriteUntil: until})
}

// cleanUpRefused removes what a refused call may have left. It gives up if that is refused, too.
func (cl *claim) cleanUpRefused() {
	cl.scheduleCleanup(&cleanup.Task{Due: time.Now(), RefusedOnce: true})
}

func (cl *claim) scheduleCleanup(t *cleanup.Task) {
	lk := cl.lock
	if lk.kind.release == nil { // it leaves nothing
		return
	}
	copied := &claim{lock: lk, owner: cl.owner, traceparent: cl.traceparent}
	copied.SetEntry(cl.Entry())
	t.Node, t.Timeout = lk.c.backend.Node(lk.key), lk.cfg.ttl()
	if lk.kind.usesReceipts {
		t.Timeout = receiptTimeout
	}
	t.Remove = func(ctx context.Context) error {
		_, err := lk.c.ops.releaseOnce(ctx, copied, cleanup.Timeout, true)
		return err
	}
	lk.c.cleaner.Add(t)
}

// Abandoned cleans up after a call whose caller left before the reply.
func (cl *claim) Abandoned(c *dispatch.Call) {
	if c.Err != nil {
		if redisfail.Classify(c.Err).Unclear || c.Reply != nil { // the script has run, but WAIT failed
			cl.scheduleCleanup(&cleanup.Task{Due: time.Now(), LateWriteUntil: c.LateWriteUntil})
		}
		return
	}
	if cl.lock.kind.queuesInRedis { // granted or not
		cl.cleanUp()
		return
	}
	if r, err := script.ParseAcquire(c.Reply); r.Granted || r.Late || err != nil || cl.Entry() != "" || time.Now().Before(cl.lateWriteUntil()) {
		cl.cleanUp()
	}
}

// claimList has the claims of one call.
type claimList []*claim

// Abandoned is that of each claim.
func (l claimList) Abandoned(c *dispatch.Call) {
	for _, cl := range l {
		cl.Abandoned(c)
	}
}

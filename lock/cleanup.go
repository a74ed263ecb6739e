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

// How to remove what a claim may have left in Redis.

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

// lateWriteUntil returns the time after which no call of the claim can take the lock; zero if no reply was lost.
func (cl *claim) lateWriteUntil() time.Time {
	if until := cl.lateWrite.Load(); until != nil {
		return *until
	}
	return time.Time{}
}

// mayWriteLate reports whether the reply to a call of the claim was lost.
func (cl *claim) mayWriteLate() bool { return cl.lateWrite.Load() != nil }

// cleanUp schedules the removal of what the claim may have left: now, and again when no delayed call of it can write.
func (cl *claim) cleanUp() {
	cl.scheduleCleanup(&cleanup.Task{Due: time.Now(), LateWriteUntil: cl.lateWriteUntil()})
}

// undo releases a grant that nobody will get. It waits for Redis for a second (cleanup.Timeout). If that isn't enough,
// cleanUp goes on.
func (cl *claim) undo() {
	ctx := telemetry.Untraced(context.Background())
	if _, err := cl.lock.c.ops.releaseOnce(ctx, cl, cleanup.Timeout, false); err != nil || cl.mayWriteLate() {
		cl.cleanUp()
	}
}

// cleanUpOnce is cleanUp without the second removal: no delayed call can take the lock for this claim again.
func (cl *claim) cleanUpOnce() { cl.cleanUpAfter(0) }

// cleanUpAfter is cleanUpOnce after a pause.
func (cl *claim) cleanUpAfter(wait time.Duration) {
	cl.scheduleCleanup(&cleanup.Task{Due: time.Now().Add(wait)})
}

// cleanUpLater is cleanUp without the first removal.
func (cl *claim) cleanUpLater() {
	until := cl.lateWriteUntil()
	cl.scheduleCleanup(&cleanup.Task{Due: until, LateWriteUntil: until})
}

// cleanUpRefused removes what a refused call may have left. It gives up if the removal is refused, too.
func (cl *claim) cleanUpRefused() {
	cl.scheduleCleanup(&cleanup.Task{Due: time.Now(), RefusedOnce: true})
}

func (cl *claim) scheduleCleanup(t *cleanup.Task) {
	lk := cl.lock
	if lk.kind.release == nil { // acquires of this kind leave nothing in Redis
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

// Abandoned implements dispatch.Owner. It cleans up after a call whose caller left before the reply.
func (cl *claim) Abandoned(c *dispatch.Call) {
	if c.Err != nil {
		if redisfail.Classify(c.Err).Unclear || c.Reply != nil { // the script has run, but WAIT failed
			cl.scheduleCleanup(&cleanup.Task{Due: time.Now(), LateWriteUntil: c.LateWriteUntil})
		}
		return
	}
	if cl.lock.kind.queuesInRedis { // also if it wasn't granted, it may have a place in the queue
		cl.cleanUp()
		return
	}
	if r, err := script.ParseAcquire(c.Reply); r.Granted || r.Late || err != nil || cl.Entry() != "" ||
		time.Now().Before(cl.lateWriteUntil()) {
		cl.cleanUp()
	}
}

// claimList has the claims of one call.
type claimList []*claim

// Abandoned implements dispatch.Owner.
func (l claimList) Abandoned(c *dispatch.Call) {
	for _, cl := range l {
		cl.Abandoned(c)
	}
}

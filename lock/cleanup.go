package lock

import (
	"context"
	"time"

	"github.com/lockdog/lockdog/lock/internal/cleanup"
	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// How to remove what a claim may have left in Redis:
//
//	                when                                             waits for Redis
//	undo            it was granted what nobody will get              yes; then cleanUp if that isn't enough
//	cleanUp         it may have the lock, or get it by a late call   no
//	cleanUpKeeping  the same, of a lock that WithMinHold keeps       no
//	cleanUpRefused  Redis has refused a call of it                   no
//	giveBackAfter   it may be granted the lock during the pause      no
//	HandleLate      its caller has left a call before the reply      no

// cleanUp schedules the removal of what the claim may have left: now, and again after lateWriteUntil if that is ahead.
// If the claim has an update, the update is repeated instead. If the lock is free by then, the removal wakes all
// waiters (release.lua): those who call it may rely on that.
func (cl *claim) cleanUp() { cl.cleanUpKeeping(time.Time{}) }

// cleanUpKeeping is cleanUp for a lock that is to stay taken until a time: see releaseParams.keepUntil.
func (cl *claim) cleanUpKeeping(until time.Time) {
	cl.scheduleCleanup(&cleanup.Task{Due: time.Now(), LateWriteUntil: cl.lateWriteUntil()}, until)
}

// undo releases a grant that nobody will get. It waits for Redis until ctx ends, and for a second at most
// (cleanup.Timeout). If the release fails, or if the claim had a call without a reply, cleanUp goes on in the
// background.
func (cl *claim) undo(ctx context.Context) { cl.undoWithin(telemetry.Untraced(ctx), cleanup.Timeout) }

// undoWithin is undo with another timeout, and traced.
func (cl *claim) undoWithin(ctx context.Context, timeout time.Duration) {
	if _, err := cl.lock.c.ops.releaseOnce(ctx, cl, timeout, releaseParams{}); err != nil || cl.hadLostReply() {
		cl.cleanUp()
	}
}

// giveBackAfter schedules a release of the claim's lock after a pause, because the lock may be granted to the claim
// during the pause. If the lock is free after the pause, the release wakes all waiters.
func (cl *claim) giveBackAfter(pause time.Duration) {
	cl.scheduleCleanup(&cleanup.Task{Due: time.Now().Add(pause)}, time.Time{})
}

// cleanUpRefused schedules the removal of what a failed call may have left. It gives up if Redis refuses the removal
// for good.
func (cl *claim) cleanUpRefused() {
	cl.scheduleCleanup(&cleanup.Task{Due: time.Now(), RefusedOnce: true}, time.Time{})
}

// scheduleCleanup schedules t, to release the lock of the claim, or to keep it taken until keepUntil. If the claim has
// an update, t repeats the update.
func (cl *claim) scheduleCleanup(t *cleanup.Task, keepUntil time.Time) {
	lk := cl.lock
	if lk.kind.release == nil && cl.update == nil { // acquires of this kind leave nothing in Redis
		return
	}
	copied := &claim{lock: lk, owner: cl.owner, traceparent: cl.traceparent, update: cl.update}
	copied.SetWaitEntry(cl.WaitEntry())
	t.Node, t.Timeout = lk.c.backend.Node(lk.key), lk.cfg.ttl()
	if cl.usesReceipts() {
		t.Timeout = receiptTimeout
	}
	t.Remove = func(ctx context.Context) error {
		_, err := lk.c.ops.releaseOnce(ctx, copied, cleanup.Timeout, releaseParams{alone: true, keepUntil: keepUntil})
		return err
	}
	lk.c.cleaner.Add(t)
}

// HandleLate implements dispatch.LateHandler. It cleans up after a call whose caller left before the reply.
func (cl *claim) HandleLate(reply dispatch.Reply, err error) {
	if err != nil {
		if reply.MayHaveRun {
			cl.scheduleCleanup(&cleanup.Task{Due: time.Now(), LateWriteUntil: reply.LateWriteUntil}, time.Time{})
		}
		return
	}
	if cl.lock.kind.queuesInRedis { // even if the claim wasn't granted, it may have a place in the queue
		cl.cleanUp()
		return
	}
	// It may have the lock, have an entry in the wait set, or have an earlier call that may still write.
	if r, err := script.ParseAcquire(reply.Value); r.Granted || r.Late || err != nil || cl.WaitEntry() != "" ||
		time.Now().Before(cl.lateWriteUntil()) {
		cl.cleanUp()
	}
}

// claimList has the claims of one call.
type claimList []*claim

// HandleLate implements dispatch.LateHandler.
func (l claimList) HandleLate(reply dispatch.Reply, err error) {
	for _, cl := range l {
		cl.HandleLate(reply, err)
	}
}

func (l claimList) noteLateWrite(until time.Time) {
	for _, cl := range l {
		cl.noteLateWrite(until)
	}
}

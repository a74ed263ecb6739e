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
func (b *claim) noteLateWrite(until time.Time) {
	for {
		old := b.lateWrite.Load()
		if old != nil && !until.After(*old) || until.IsZero() || b.lateWrite.CompareAndSwap(old, &until) {
			return
		}
	}
}

// lateWriteUntil returns the time after which no call of the claim can take the lock any more; zero if no reply was lost.
func (b *claim) lateWriteUntil() time.Time {
	if until := b.lateWrite.Load(); until != nil {
		return *until
	}
	return time.Time{}
}

// mayWriteLate reports whether the reply to a call of the claim was lost.
func (b *claim) mayWriteLate() bool { return b.lateWrite.Load() != nil }

// cleanUp removes what the claim may have left, now and once more when no delayed call of it can write.
func (b *claim) cleanUp() {
	b.scheduleCleanup(&cleanup.Task{Due: time.Now(), LateWriteUntil: b.lateWriteUntil()})
}

// undo removes a grant that nobody is to have. It returns when the lock is free again, or Redis hasn't said so within a second: then that
// is left to cleanUp.
func (b *claim) undo() {
	ctx := telemetry.Untraced(context.Background())
	if _, err := b.lock.c.ops.releaseOnce(ctx, b, cleanup.Timeout); err != nil || b.mayWriteLate() {
		b.cleanUp()
	}
}

// cleanUpNow is cleanUp for what no delayed call can bring back.
func (b *claim) cleanUpNow() { b.scheduleCleanup(&cleanup.Task{Due: time.Now()}) }

// cleanUpLater removes what a delayed call of the claim may still write.
func (b *claim) cleanUpLater() {
	until := b.lateWriteUntil()
	b.scheduleCleanup(&cleanup.Task{Due: until, LateWriteUntil: until})
}

// cleanUpRefused removes what a refused call may have left. It gives up if that is refused, too.
func (b *claim) cleanUpRefused() {
	b.scheduleCleanup(&cleanup.Task{Due: time.Now(), RefusedOnce: true})
}

func (b *claim) scheduleCleanup(t *cleanup.Task) {
	lk := b.lock
	if lk.kind.release == nil { // it leaves nothing
		return
	}
	owner := b.owner
	t.Node, t.Patience = lk.c.backend.Node(lk.key), lk.cfg.lease
	if lk.kind.usesReceipts {
		t.Patience = receiptPatience
	}
	t.Remove = func(ctx context.Context) error {
		_, err := lk.c.ops.releaseOnce(ctx, &claim{lock: lk, owner: owner}, cleanup.Timeout)
		return err
	}
	lk.c.cleaner.Add(t)
}

// Abandoned cleans up after a call whose caller left before the reply.
func (b *claim) Abandoned(c *dispatch.Call) {
	if c.Err != nil {
		if redisfail.Classify(c.Err).Unclear {
			b.scheduleCleanup(&cleanup.Task{Due: time.Now(), LateWriteUntil: c.LateWriteUntil})
		}
		return
	}
	if b.lock.kind.queuesInRedis { // granted or not
		b.cleanUp()
		return
	}
	if r, err := script.ParseAcquire(c.Reply); r.Granted || r.Late || err != nil || time.Now().Before(b.lateWriteUntil()) {
		b.cleanUp()
	}
}

// claimList has the claims of one call.
type claimList []*claim

// Abandoned is that of each claim.
func (l claimList) Abandoned(c *dispatch.Call) {
	for _, b := range l {
		b.Abandoned(c)
	}
}

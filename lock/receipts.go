package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// The counters of semaphores and latches have no lease. If a reply is lost and the request is repeated, a counter that
// is changed twice stays wrong. So a script that changes a counter without granting or ending a lease also writes a
// receipt beside it, with the operation's owner in its name. A repeated request finds the receipt and changes nothing.

const (
	// receiptTimeout is how long the cleanup goes on repeating an operation with a receipt, if Redis doesn't confirm
	// the operation.
	receiptTimeout = 2 * time.Minute

	spentMost   = 10_000 // receipts that a client remembers for deletion
	spentAtOnce = 4      // receipts that one call deletes, at most
)

// receipts are the names of receipts that aren't needed any more, because the reply to their operation has arrived. The
// next operation on the same key deletes some of them. Otherwise a busy semaphore would keep five minutes of receipts
// in Redis. Receipts that are forgotten here expire.
type receipts struct {
	mu    sync.Mutex
	spent map[string][]string // by the counter's key
	count int
}

func newReceipts() *receipts { return &receipts{spent: make(map[string][]string)} }

// add notes that the reply to a claim has arrived. If every earlier call of the claim has got its reply, the claim's
// receipt is spent: nothing needs it any more.
func (r *receipts) add(claim *claim) {
	if !claim.usesReceipts() || claim.hadLostReply() {
		return
	}
	key := claim.lock.key
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == spentMost {
		clear(r.spent)
		r.count = 0
	}
	r.spent[key] = append(r.spent[key], script.ReceiptKey(key, claim.owner))
	r.count++
}

// take removes some receipts of a key, and returns them.
func (r *receipts) take(key string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.spent[key]
	left := max(len(all)-spentAtOnce, 0)
	some := slices.Clone(all[left:])
	r.count -= len(some)
	if left == 0 {
		delete(r.spent, key)
	} else {
		r.spent[key] = all[:left]
	}
	return some
}

// counterUpdate changes a counter. Operations and the cleanup treat it as a release.
type counterUpdate struct {
	script *script.Releaser
	amount int
}

// newCounterUpdate returns a claim that changes the counter. It takes effect once, however often it is sent.
func (lk *lock) newCounterUpdate(s *script.Releaser, amount int) *claim {
	op := *lk
	op.cfg = lk.cfg.patient()
	return &claim{lock: &op, owner: lk.c.newOwner(), update: &counterUpdate{script: s, amount: amount}}
}

func (cl *claim) usesReceipts() bool { return cl.update != nil || cl.lock.kind.usesReceipts }

// spentReceipts returns receipts that the claim's next call deletes.
func (cl *claim) spentReceipts() []string {
	if !cl.usesReceipts() {
		return nil
	}
	return cl.lock.c.receipts.take(cl.lock.key)
}

// apply sends an update, with retries for one lease. If it fails and keepOn is set, the cleanup goes on with it, unless
// that can't help: see releaseReply.mayGoOn. It reports false if the script's condition for the change wasn't met.
func (lk *lock) apply(ctx context.Context, rel *telemetry.Release, claim *claim, keepOn bool) (bool, error) {
	began := time.Now()
	f, err := lk.c.ops.releaseWithRetry(
		ctx, rel, claim, began.Add(claim.lock.cfg.lease), releaseParams{passOn: script.WakeAll})
	if err == nil {
		lk.c.receipts.add(claim)
		return f.Outcome == script.Done, nil
	}
	// If this process stood still for minutes, the receipt of an earlier try may have expired.
	if keepOn && f.mayGoOn && time.Since(began) < receiptTimeout {
		claim.cleanUp()
	}
	return false, err
}

// applyRelease applies an update for which others wait. It works on an ended ctx, and while the client closes.
func (lk *lock) applyRelease(ctx context.Context, op string, update func() (*claim, error)) error {
	if ctx != nil && ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	if err := lk.usable(ctx, op); err != nil {
		return err
	}
	claim, err := update()
	if err != nil {
		return lk.wrap(op, err)
	}
	if lk.c.gate.enter() {
		defer lk.c.gate.leave()
	}
	ctx, rel := lk.c.rec.StartGive(ctx, &lk.tel)
	_, err = lk.apply(ctx, &rel, claim, true)
	if err != nil {
		err = lk.wrap(op, err)
		rel.End(telemetry.ReleaseError, false, err)
		return err
	}
	rel.End(telemetry.ReleaseReleased, false, nil)
	return nil
}

// applyUpdate applies an update that has no span. Of its outcomes only a failure is counted.
func (lk *lock) applyUpdate(
	ctx context.Context, op string, keepOn bool, update func() (*claim, error),
) (done bool, err error) {
	err = lk.call(ctx, op, func() error {
		claim, err := update()
		if err != nil {
			return err
		}
		if done, err = lk.apply(ctx, &telemetry.Release{}, claim, keepOn); err != nil && !leftEarly(ctx, err) {
			lk.c.rec.Error(ctx, telemetry.OpRelease, redisfail.Classify(err).Kind)
		}
		return err
	})
	return done, err
}

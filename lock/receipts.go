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

// The numbers of semaphores and latches change for good: one that is changed twice, because an answer was lost and the
// request repeated, stays wrong. So each change leaves a receipt beside the number, in the same script, under the name of
// the operation's owner; who finds it there has done it before.

const (
	// receiptPatience is how long the cleanup goes on with what Redis hasn't confirmed.
	receiptPatience = 2 * time.Minute

	spentMost   = 10_000 // receipts that a client remembers to delete
	spentAtOnce = 4
)

// receipts are those that nobody will ask for any more, as the operation's answer has come. The next operation on the same
// key takes them along, to be deleted: else a busy semaphore would keep five minutes of them. Those forgotten here go by
// themselves.
type receipts struct {
	mu    sync.Mutex
	spent map[string][]string // by the key
	count int
}

func newReceipts() *receipts { return &receipts{spent: make(map[string][]string)} }

// add notes that a bid's answer has come. No earlier call of it may be under way.
func (r *receipts) add(b *claim) {
	if !b.lock.kind.usesReceipts || b.mayWriteLate() {
		return
	}
	key := b.lock.key
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == spentMost {
		clear(r.spent)
		r.count = 0
	}
	r.spent[key] = append(r.spent[key], script.ReceiptKey(key, b.owner))
	r.count++
}

// take returns some of them.
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

// counterUpdate is an operation that changes the number for good, once however often it is sent. For the transport and the
// cleanup it is a release.
func (lk *lock) counterUpdate(s *script.Releaser, amount int) *claim {
	k := *lk.kind
	k.release, k.amount, k.usesReceipts, k.isCounterUpdate = s, amount, true, true
	op := *lk
	op.kind, op.cfg = &k, lk.cfg.patient()
	return &claim{lock: &op, owner: lk.c.newOwner()}
}

// apply does a deed, over as many tries as it takes in one lease, and with keepOn has the cleanup go on with it. It says whether it was done: the script may have found
// that it wasn't to be.
func (lk *lock) apply(ctx context.Context, rel *telemetry.Release, b *claim, keepOn bool) (bool, error) {
	f, err := lk.c.transport.release(ctx, rel, b, time.Now().Add(b.lock.cfg.lease), script.WakeAll, nil, nil)
	if err == nil {
		lk.c.receipts.add(b)
		return f.Outcome == script.Published, nil
	}
	if keepOn && (ctx.Err() != nil || redisfail.Classify(err).Retry) {
		b.cleanUpNow()
	}
	return false, err
}

// applyRelease performs a deed that others wait for: on a ctx that has ended, too, and while the client closes, as long as it can.
func (lk *lock) applyRelease(ctx context.Context, op string, deed func() (*claim, error)) error {
	if ctx != nil && ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	if err := lk.usable(ctx, op); err != nil {
		return err
	}
	b, err := deed()
	if err != nil {
		return lk.wrap(op, err)
	}
	if lk.c.gate.enter() {
		defer lk.c.gate.leave()
	}
	ctx, rel := lk.c.rec.StartGive(ctx, &lk.tel)
	_, err = lk.apply(ctx, &rel, b, true)
	if err != nil {
		err = lk.wrap(op, err)
		rel.End(telemetry.ReleaseError, false, err)
		return err
	}
	rel.End(telemetry.ReleaseReleased, false, nil)
	return nil
}

// applyUpdate performs a deed that nobody is to notice but by its effect.
func (lk *lock) applyUpdate(ctx context.Context, op string, keepOn bool, deed func() (*claim, error)) (done bool, err error) {
	err = lk.call(ctx, op, func() error {
		b, err := deed()
		if err != nil {
			return err
		}
		if done, err = lk.apply(ctx, &telemetry.Release{}, b, keepOn); err != nil {
			lk.c.rec.Error(ctx, telemetry.OpRelease, redisfail.Classify(err).Kind)
		}
		return err
	})
	return done, err
}

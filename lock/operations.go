package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// The operations on a lock in Redis: what each sends, how it reads the answer, and when it tries again.

const maxTries = 4 // of one operation, the first included

// claim is one owner's wish to hold a lock.
type claim struct {
	lock        *lock
	owner       string
	traceparent string
	lateWrite   atomic.Pointer[time.Time] // see lateWriteUntil; nil: no reply was lost
}

// acquireReply is Redis's answer to a bid.
type acquireReply struct {
	script.AcquireReply
	sent   time.Time // before the request left: the lease counts from here
	acked  int       // replicas that have the grant, where that was asked for
	moving bool      // the lock's slot is on its way to another node
}

// held is the error for a lock with a name that wasn't granted.
func (v *acquireReply) held(name string) *HeldError {
	return &HeldError{Name: name, Owner: v.Owner, Remaining: v.Remaining}
}

// releaseReply is Redis's answer to a release.
type releaseReply struct {
	script.ReleaseReply
	unconfirmed bool      // an earlier try may have done it; its answer never came
	sent        time.Time // before the request left
}

// errLeft is the outcome of an acquire that wasn't answered within its lease. The bid is used up.
var errLeft = redisfail.NewTimeout("lockdog: timeout: no answer of Redis within the lease")

// acquireWithRetry makes one attempt for the bid: one answer of Redis, over as many tries as failures demand.
func (t *transport) acquireWithRetry(ctx context.Context, a *telemetry.Acquire, b *claim, terms acquireParams) (acquireReply, error) {
	var err error
	ws, w := b.lock.c.waits, terms.waiter
	for try := range maxTries {
		if try > 0 {
			if try == 1 && terms.outside { // Redis is in trouble: this may take long
				a.WaitStart()
				w = ws.trackClaim(b, terms)
				ws.failed(w, err)
				defer ws.untrack(w)
			}
			if !redisfail.Sleep(ctx, redisfail.Backoff(try)) {
				return acquireReply{}, cutOff(ctx, err)
			}
		}
		v, failed := t.sendAcquire(ctx, b, terms)
		if failed == nil {
			return v, nil
		}
		if ctx.Err() != nil {
			if err == nil || redisfail.IsUnreached(failed) {
				err = failed
			}
			return acquireReply{}, cutOff(ctx, err)
		}
		err = failed
		ws.failed(w, err)
		f := redisfail.Classify(err)
		a.Error(f.Kind)
		if !f.Retry || errors.Is(err, errLeft) {
			break
		}
	}
	return acquireReply{}, err
}

// cutOff is the outcome of an operation that failed so: the cause of ctx goes before it, if that has ended.
func cutOff(ctx context.Context, failed error) error {
	cause := context.Cause(ctx)
	if cause == nil {
		return failed
	}
	if errors.Is(failed, cause) || errors.Is(failed, ctx.Err()) {
		return cause
	}
	return fmt.Errorf("%w, after: %w", cause, failed)
}

func (t *transport) sendAcquire(ctx context.Context, b *claim, terms acquireParams) (acquireReply, error) {
	cfg, kind := b.lock.cfg, b.lock.kind
	oneKey := false
	for {
		args := script.AcquireArgs{
			Lock: b.lock.keys(), Owner: b.owner, Lease: cfg.leaseArg, Traceparent: b.traceparent, Publish: t.backend.Traits().Publish,
			Keep: terms.keep, Under: terms.under, Waited: terms.waited, Permits: terms.permits, Spent: b.lock.spent(),
		}
		waits := terms.waiterID.Number != "" && !oneKey && !t.waitSetDenied.Load()
		if waits {
			args.Waiter = terms.waiterID
		}
		if oneKey {
			args.Counter = nil
		}
		c := t.callTo(b.lock.key, telemetry.PurposeAcquire)
		kind.acquire.Args(&c.Request, args)
		c.window, c.claim = min(cfg.lease, t.backend.Timeout()), b
		c.replicas, c.patience = cfg.replicas, cfg.patience
		if !t.do(ctx, c, cfg.lease) {
			return acquireReply{}, t.left(ctx, errLeft)
		}
		if c.err != nil {
			err := c.err
			if redisfail.Classify(err).Unclear || c.reply != nil { // the script has run, but WAIT failed
				b.noteLateWrite(c.expires)
			}
			t.recycle(c)
			if kind.oneKey && !oneKey && redisfail.Classify(err).Keys == redisfail.KeysSplit {
				oneKey = true // the slot moves: two of its keys can't be used at once, one can
				continue
			}
			if waits && redisfail.IsForbidden(err) {
				t.waitSetDenied.Store(true) // the ACL may be without the set of those who wait
				continue
			}
			return acquireReply{}, err
		}
		reply, err := script.ParseAcquire(c.reply)
		v := acquireReply{reply, c.sent, c.acked, oneKey}
		if err = c.learn(reply.Now, reply.Late, err); err != nil && !reply.Late {
			b.noteLateWrite(c.expires) // whatever that answer means
		}
		t.recycle(c)
		return v, err
	}
}

// release gives the lock back, trying until deadline. With heir, the first try hands it to that waiter, where no
// other process waits; a failed first try is reported through failed before it is repeated without an heir.
func (t *transport) release(ctx context.Context, rel *telemetry.Release, b *claim, deadline time.Time, wake script.Wake, heir *handOverTarget, failed func(redisfail.Failure, time.Time)) (releaseReply, error) {
	unclear := false
	var last error
	for try := 1; ; try++ {
		f, expires, err := t.sendRelease(ctx, b, wake, heir, max(time.Until(deadline), 0))
		if err == nil {
			if f.Refused != nil {
				rel.Error(redisfail.Classify(f.Refused).Kind)
			}
			if f.Outcome >= script.Missing && unclear && time.Now().Before(deadline) && !b.lock.kind.isCounterUpdate {
				// The entry was ours and its lease hadn't run out: our own earlier try took it away.
				return releaseReply{unconfirmed: true, sent: f.sent}, nil
			}
			return f, nil
		}
		what := redisfail.Classify(err)
		rel.Error(what.Kind)
		if heir != nil {
			failed(what, expires)
			heir = nil
		}
		unclear = unclear || what.Unclear
		if last = failedOf(ctx, last, err); !t.again(ctx, what, last, try, deadline) {
			return releaseReply{}, cutOff(ctx, last)
		}
	}
}

// again pauses before a release is tried again. It reports whether it is to be.
func (t *transport) again(ctx context.Context, what redisfail.Failure, err error, try int, deadline time.Time) bool {
	pause := redisfail.Backoff(try)
	return what.Retry && !errors.Is(err, errLeft) && time.Until(deadline) > pause && redisfail.Sleep(ctx, pause)
}

// failedOf is what an operation failed of: its last try, unless it was the end of ctx that failed that.
func failedOf(ctx context.Context, last, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case last != nil:
		return last
	case errors.Is(err, errLeft):
		return context.Cause(ctx)
	}
	return err
}

// handOverTarget is the waiter to whom a release hands the lock.
type handOverTarget struct {
	*claim
	subscribed int // how many of the channel's subscribers are this client's
}

// releaseOnce gives the lock back in one try.
func (t *transport) releaseOnce(ctx context.Context, b *claim, patience time.Duration) (releaseReply, error) {
	f, _, err := t.sendRelease(ctx, b, script.WakeOneAnnounced, nil, patience)
	if failed := cmp.Or(err, f.Refused); failed != nil {
		t.rec.Error(ctx, telemetry.OpRelease, redisfail.Classify(failed).Kind)
	}
	return f, err
}

// sendRelease is one try. It also says until when a hand-over that wasn't answered may happen yet.
func (t *transport) sendRelease(ctx context.Context, b *claim, wake script.Wake, heir *handOverTarget, patience time.Duration) (f releaseReply, expires time.Time, err error) {
	kind := b.lock.kind
	traits := t.backend.Traits()
	args := script.ReleaseArgs{
		Lock: b.lock.keys(), Owner: b.owner, Publish: traits.Publish,
		Wake: wakes(wake), NumSub: traits.NumSubCommand, Amount: kind.amount, Spent: b.lock.spent(),
	}
	releaser, lease := kind.release, b.lock.cfg.lease
	if heir != nil {
		to := heir.lock.cfg
		releaser, lease = kind.handOver, to.lease
		args.Next = script.Next{Owner: heir.owner, Lease: to.leaseArg, Traceparent: heir.traceparent, Subscribed: heir.subscribed}
	}
	c := t.callTo(b.lock.key, telemetry.PurposeRelease)
	releaser.Args(&c.Request, args)
	if c.Expires() {
		c.window = min(lease, t.backend.Timeout())
	}
	if c.window > 0 {
		expires = time.Now().Add(c.window)
	}
	window := c.window
	if !t.do(ctx, c, patience) {
		if window > 0 { // it was sent at the latest now
			expires = time.Now().Add(window)
		}
		return releaseReply{}, expires, t.left(context.Background(), errLeft)
	}
	defer t.recycle(c)
	if c.Expires() && !c.expires.IsZero() {
		expires = c.expires
	}
	if c.err != nil {
		if kind.isCounterUpdate && redisfail.Classify(c.err).Unclear {
			b.noteLateWrite(expires)
		}
		return releaseReply{}, expires, c.err
	}
	reply, err := script.ParseRelease(c.reply)
	if err = c.learn(reply.Now, reply.Late, err); err != nil {
		return releaseReply{}, expires, err
	}
	return releaseReply{ReleaseReply: reply, sent: c.sent}, expires, nil
}

// force takes the lock away from whoever holds it, and returns the owners, at most the first ten.
func (t *transport) force(ctx context.Context, lk *lock) (was bool, owners []string, err error) {
	reply, err := t.simple(ctx, telemetry.OpForceUnlock, lk.key, func(r *script.Request) {
		lk.kind.force.Args(r, script.ForceArgs{
			Lock: lk.keys(), Publish: t.backend.Traits().Publish, Control: lk.c.cfg.prefix + controlPrefix, Client: lk.c.cfg.id,
		})
	})
	if err != nil {
		return false, nil, err
	}
	r, err := script.ParseForce(reply)
	if r.Refused != nil {
		t.rec.Error(ctx, telemetry.OpForceUnlock, redisfail.Classify(r.Refused).Kind)
	}
	return r.Held, r.Owners, err
}

// inspect reads the lock's entry.
func (t *transport) inspect(ctx context.Context, lk *lock) (script.InspectReply, error) {
	reply, err := t.simple(ctx, telemetry.OpInspect, lk.key, func(r *script.Request) { lk.kind.inspect.Args(r, lk.keys()) })
	if err != nil {
		return script.InspectReply{}, err
	}
	return script.ParseInspect(reply)
}

// simple runs a script that may be repeated without a thought.
func (t *transport) simple(ctx context.Context, op telemetry.Operation, key string, args func(*script.Request)) (any, error) {
	var err error
	for try := range maxTries {
		if try > 0 && !redisfail.Sleep(ctx, redisfail.Backoff(try)) {
			break
		}
		c := t.callTo(key, telemetry.PurposeOther)
		args(&c.Request)
		if !t.do(ctx, c, 2*t.backend.Timeout()) {
			err = failedOf(ctx, err, t.left(ctx, redisfail.NewTimeout("lockdog: timeout: no answer of Redis")))
			break
		}
		reply, failed := c.reply, c.err
		t.recycle(c)
		if failed == nil {
			return reply, nil
		}
		f := redisfail.Classify(failed)
		t.rec.Error(ctx, op, f.Kind)
		err = failedOf(ctx, err, failed)
		if !f.Retry {
			break
		}
	}
	return nil, cutOff(ctx, err)
}

package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/telemetry"
)

// The operations on a lock in Redis: what each sends, how it reads the answer, and when it tries again.

const (
	maxTries     = 4 // of one operation, the first included
	firstBackoff = 10 * time.Millisecond
)

// bid is one owner's wish to hold a lock.
type bid struct {
	lock        *lock
	owner       string
	traceparent string
	// ghosts is until when a call of this bid, whose answer never came, may still take the lock: when the bid is
	// given up, or its grant released, the lock must be swept once more after it.
	ghosts time.Time
}

func (b *bid) haunt(until time.Time) {
	if until.After(b.ghosts) {
		b.ghosts = until
	}
}

// verdict is Redis's answer to a bid.
type verdict struct {
	granted bool
	token   int64
	sent    time.Time // before the request left: the lease counts from here
	holder  HeldError // when not granted; without the name
	meta    string    // what the holder says of itself
	left    int64     // when granted: what is left for others, where it can be shared
	acked   int       // replicas that have the grant, where that was asked for
	moving  bool      // the lock's slot is on its way to another node
}

// errLeft is the outcome of an acquire that wasn't answered within its lease. The bid is used up.
var errLeft = &timeoutError{"lockdog: timeout: no answer of Redis within the lease"}

// errReply is an answer that no script of ours gives.
var errReply = errors.New("lockdog: unreadable answer of Redis")

// ints reads the numbers that a script's answer starts with. It is small enough to be inlined, and the numbers then stay on
// the caller's stack.
func ints(reply any, n int) ([]any, []int64, error) {
	nums := make([]int64, n)
	list, err := readInts(nums, reply)
	return list, nums, err
}

func readInts(nums []int64, reply any) ([]any, error) {
	list, ok := reply.([]any)
	if !ok || len(list) < len(nums) {
		return nil, fmt.Errorf("%w: %.80v", errReply, reply)
	}
	for i := range nums {
		if nums[i], ok = list[i].(int64); !ok {
			return nil, fmt.Errorf("%w: %.80v", errReply, reply)
		}
	}
	return list, nil
}

// acquire makes one attempt for the bid: one answer of Redis, over as many tries as failures demand.
func (t *transport) acquire(ctx context.Context, a *telemetry.Acquire, b *bid, terms terms) (verdict, error) {
	var err error
	for try := range maxTries {
		if try > 0 {
			if !sleep(ctx, backoff(try)) {
				return verdict{}, context.Cause(ctx)
			}
		}
		var v verdict
		if v, err = t.tryAcquire(ctx, b, terms); err == nil {
			return v, nil
		}
		if ctx.Err() != nil {
			return verdict{}, context.Cause(ctx)
		}
		f := classify(err)
		a.Error(f.kind)
		if !f.retry || errors.Is(err, errLeft) {
			break
		}
	}
	return verdict{}, err
}

func (t *transport) tryAcquire(ctx context.Context, b *bid, terms terms) (verdict, error) {
	cfg, kind := b.lock.cfg, b.lock.kind
	oneKey := false
	for {
		c := t.callTo(b.lock.key, telemetry.PurposeAcquire, kind.acquire)
		c.address(b.lock, b.owner, oneKey)
		c.Args = append(c.Args, b.member(), cfg.leaseArg, int64(0), b.traceparent)
		if kind.asking != nil {
			c.Args = append(c.Args, kind.asking(b.lock, terms)...)
		}
		c.notAfter, c.window, c.bid = 2, min(cfg.lease, t.backend.Timeout()), b
		c.replicas, c.patience = cfg.replicas, cfg.patience
		if !t.do(ctx, c, cfg.lease) {
			return verdict{}, t.left(ctx, errLeft)
		}
		if c.err != nil {
			err := c.err
			if classify(err).unclear || c.reply != nil { // the script has run, but WAIT failed
				b.haunt(c.expires)
			}
			t.recycle(c)
			if kind.oneKey && !oneKey && strings.Contains(err.Error(), "TRYAGAIN") {
				oneKey = true // the slot moves: two of its keys can't be used at once, one can
				continue
			}
			return verdict{}, err
		}
		v, now, err := readVerdict(c.reply)
		v.sent, v.acked, v.moving = c.sent, c.acked, oneKey
		if err == nil || errors.Is(err, errLate) {
			c.node.clock.learn(now, c.sent, err != nil)
		} else {
			b.haunt(c.expires) // whatever that answer means
		}
		t.recycle(c)
		return v, err
	}
}

// leastTime is a time in µs, long past. What is less is no time, but a stray number: never a grant.
const leastTime = 1 << 49

// readVerdict reads the answer of the acquire script. It returns Redis's time, too.
func readVerdict(reply any) (v verdict, now int64, err error) {
	if now, ok := reply.(int64); ok && now > leastTime {
		return verdict{granted: true, token: now, left: 1, holder: HeldError{Remaining: -1}}, now, nil
	}
	list, nums, err := ints(reply, 2)
	if err != nil {
		return verdict{}, 0, err
	}
	now = nums[1]
	switch nums[0] {
	case 1:
		_, nums, err = ints(reply, 3)
		if err != nil {
			return verdict{}, 0, err
		}
		v = verdict{granted: true, token: nums[2], left: 1, holder: HeldError{Remaining: -1}} // there may be
		if _, more, err := ints(reply, 5); err == nil {
			v.left, v.holder.Remaining = more[3], millis(more[4])
		}
		return v, now, nil
	case 0:
		if _, nums, err = ints(reply, 3); err != nil || len(list) < 5 {
			return verdict{}, 0, fmt.Errorf("%w: %.80v", errReply, reply)
		}
		owner, ok1 := list[3].(string)
		meta, ok2 := list[4].(string)
		if !ok1 || !ok2 {
			return verdict{}, 0, fmt.Errorf("%w: %.80v", errReply, reply)
		}
		return verdict{holder: HeldError{Owner: owner, Remaining: millis(nums[2])}, meta: meta}, now, nil
	case 2:
		return verdict{}, now, errLate
	}
	return verdict{}, 0, fmt.Errorf("%w: %.80v", errReply, reply)
}

// millis reads a PTTL: negative means that there is no expiry.
func millis(ms int64) time.Duration {
	const longest = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(max(ms, -1), longest)) * time.Millisecond
}

// meta is what a holder says of itself beside its owner.
type meta struct {
	token       int64
	traceparent string
}

// parseMeta reads a '@lockdog' field. Anybody may have written it: what doesn't parse counts as absent.
func parseMeta(s string) meta {
	token, traceparent, _ := strings.Cut(s, " ")
	n, err := strconv.ParseInt(token, 10, 64)
	if err != nil || n < 0 {
		n = 0
	}
	return meta{n, traceparent}
}

// freed is Redis's answer to a release.
type freed struct {
	outcome     freedOutcome
	unconfirmed bool      // an earlier try may have done it; its answer never came
	token       int64     // of the waiter who got the lock
	sent        time.Time // before the request left
}

type freedOutcome uint8

const (
	freedPublished freedOutcome = iota
	freedHandedOver
	freedMissing // not ours any more, and nobody's
	freedTaken   // not ours any more, but somebody's
)

// release gives the lock back, trying until deadline. With heir, the first try hands it to that waiter, where no
// other process waits; a failed first try is reported through failed before it is repeated without an heir.
func (t *transport) release(ctx context.Context, rel *telemetry.Release, b *bid, deadline time.Time, heir *heir, failed func(failure, time.Time)) (freed, error) {
	unclear := false
	for try := 1; ; try++ {
		f, expires, err := t.tryRelease(ctx, b, heir, max(time.Until(deadline), 0))
		if err == nil {
			if f.outcome >= freedMissing && unclear && time.Now().Before(deadline) && !b.lock.kind.deed {
				// The entry was ours and its lease hadn't run out: our own earlier try took it away.
				return freed{outcome: freedPublished, unconfirmed: true, sent: f.sent}, nil
			}
			return f, nil
		}
		what := classify(err)
		rel.Error(what.kind)
		if heir != nil {
			failed(what, expires)
			heir = nil
		}
		unclear = unclear || what.unclear
		if ctx.Err() != nil {
			return freed{}, context.Cause(ctx)
		}
		if wait := backoff(try); !what.retry || errors.Is(err, errLeft) || time.Until(deadline) <= wait || !sleep(ctx, wait) {
			return freed{}, err
		}
	}
}

// heir is the waiter to whom a release hands the lock.
type heir struct {
	*bid
	subscribed int // how many of the channel's subscribers are this client's
}

// releaseOnce gives the lock back in one try.
func (t *transport) releaseOnce(ctx context.Context, b *bid, patience time.Duration) (freed, error) {
	f, _, err := t.tryRelease(ctx, b, nil, patience)
	if err != nil {
		t.rec.Error(ctx, telemetry.OpRelease, classify(err).kind)
	}
	return f, err
}

// tryRelease is one try. It also says until when a hand-over that wasn't answered may happen yet.
func (t *transport) tryRelease(ctx context.Context, b *bid, heir *heir, patience time.Duration) (f freed, expires time.Time, err error) {
	kind := b.lock.kind
	if kind.deed { // maybe the client's first operation
		if err := t.prepare(ctx, b.lock); err != nil {
			return freed{}, time.Time{}, err
		}
	}
	traits := t.backend.Traits()
	c := t.callTo(b.lock.key, telemetry.PurposeRelease, kind.release)
	c.address(b.lock, b.owner, heir == nil && kind.oneKey)
	c.Args = append(c.Args, b.member(), b.lock.place().channel, traits.Publish)
	if kind.freeing != nil {
		c.Args = append(c.Args, kind.freeing(b.lock)...)
	}
	if heir != nil {
		c.Args = append(c.Args, heir.member(), heir.lock.cfg.leaseArg, int64(0), heir.traceparent, traits.NumSub, heir.subscribed)
		c.notAfter, c.window = 5, min(heir.lock.cfg.lease, t.backend.Timeout())
	}
	if kind.deed {
		c.notAfter, c.window = 3, min(b.lock.cfg.lease, t.backend.Timeout())
	}
	expires = time.Now().Add(c.window)
	if !t.do(ctx, c, patience) {
		return freed{}, expires, t.left(context.Background(), errLeft)
	}
	defer t.recycle(c)
	if c.notAfter >= 0 && !c.expires.IsZero() {
		expires = c.expires
	}
	if c.err != nil {
		if kind.deed && classify(c.err).unclear {
			b.haunt(expires)
		}
		return freed{}, expires, c.err
	}
	f, now, err := readFreed(c.reply)
	if now != 0 && (err == nil || errors.Is(err, errLate)) {
		c.node.clock.learn(now, c.sent, err != nil)
	}
	if err != nil {
		return freed{}, expires, err
	}
	f.sent = c.sent
	return f, expires, nil
}

// readFreed reads the answer of the release script. It returns Redis's time, too, 0 where that isn't in it.
func readFreed(reply any) (freed, int64, error) {
	if n, ok := reply.(int64); ok && n == 1 {
		return freed{outcome: freedPublished}, 0, nil
	}
	_, nums, err := ints(reply, 2)
	if err != nil {
		return freed{}, 0, err
	}
	now := nums[1]
	switch nums[0] {
	case 1:
		return freed{outcome: freedPublished}, now, nil
	case 2, 0:
		_, more, err := ints(reply, 3)
		if err != nil {
			return freed{}, 0, err
		}
		if nums[0] == 2 {
			return freed{outcome: freedHandedOver, token: more[2]}, now, nil
		}
		if more[2] != 0 {
			return freed{outcome: freedTaken}, now, nil
		}
		return freed{outcome: freedMissing}, now, nil
	case 3:
		return freed{}, now, errLate
	}
	return freed{}, 0, fmt.Errorf("%w: %.80v", errReply, reply)
}

// force takes the lock away from whoever holds it.
func (t *transport) force(ctx context.Context, lk *lock) (bool, error) {
	if !t.prepared.Load() { // how the servers publish isn't known before their first answer
		if _, err := t.inspect(ctx, lk); err != nil {
			return false, err
		}
	}
	args := []any{lk.kind.channel(lk.key), t.backend.Traits().Publish, lk.c.cfg.prefix + controlPrefix}
	if lk.kind.freeing != nil {
		args = append(args, lk.kind.freeing(lk)...)
	}
	reply, err := t.simple(ctx, telemetry.OpForceUnlock, lk.kind.force, lk.plainKeys(), args...)
	if err != nil {
		return false, err
	}
	n, ok := reply.(int64)
	if !ok {
		return false, fmt.Errorf("%w: %.80v", errReply, reply)
	}
	return n == 1, nil
}

// inspect reads the lock's entry.
func (t *transport) inspect(ctx context.Context, lk *lock) (Holder, error) {
	reply, err := t.simple(ctx, telemetry.OpInspect, lk.kind.inspect, lk.plainKeys())
	if err != nil {
		return Holder{}, err
	}
	return readHolder(reply)
}

// readHolder reads the answer of the inspect script.
func readHolder(reply any) (Holder, error) {
	list, nums, err := ints(reply, 2)
	if err != nil {
		return Holder{}, err
	}
	h := Holder{Remaining: millis(nums[1])}
	for i := 2; i+1 < len(list); i += 2 {
		field, ok1 := list[i].(string)
		value, ok2 := list[i+1].(string)
		if !ok1 || !ok2 {
			return Holder{}, fmt.Errorf("%w: %.80v", errReply, reply)
		}
		switch {
		case field == metaField:
			m := parseMeta(value)
			h.Token, h.TraceID = m.token, traceID(m.traceparent)
		case h.Owner != "" && field == "mode":
			h.Mode = value
		case h.Owner != "" && field == "readers":
			h.Readers, _ = strconv.Atoi(value)
		case h.Owner == "":
			h.Held, h.Owner = true, field
			h.Count, _ = strconv.Atoi(value)
		}
	}
	if !h.Held {
		return Holder{}, nil
	}
	return h, nil
}

// simple runs a script that may be repeated without a thought.
func (t *transport) simple(ctx context.Context, op telemetry.Operation, s *backend.Script, keys []string, args ...any) (any, error) {
	var err error
	for try := range maxTries {
		if try > 0 && !sleep(ctx, backoff(try)) {
			return nil, context.Cause(ctx)
		}
		c := t.newCall(telemetry.PurposeOther, s, keys, args...)
		if !t.do(ctx, c, 2*t.backend.Timeout()) {
			return nil, t.left(ctx, &timeoutError{"lockdog: timeout: no answer of Redis"})
		}
		reply := c.reply
		err = c.err
		t.recycle(c)
		if err == nil {
			return reply, nil
		}
		f := classify(err)
		t.rec.Error(ctx, op, f.kind)
		if !f.retry {
			break
		}
	}
	return nil, err
}

// backoff is the pause before a try, with jitter.
func backoff(try int) time.Duration {
	d := firstBackoff << min(try-1, 6)
	return d/2 + rand.N(d)
}

// sleep pauses, and says whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

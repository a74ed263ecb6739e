package agent

import (
	"context"
	"errors"
	"math/bits"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/agentlink"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/renewal"
	"github.com/lockdog/lockdog/watchdog"
)

// gathering is the part of its time that a lease waits for others. Its time is a 12th of its length, as a rule (see
// watchdog.Batch and Link.Renew), so it waits a 120th. Then there are 40 calls per renewal interval at most, or as many
// as there are full batches.
const gathering = 10

// batches collect the leases of all clients by node, and renew them in common calls.
type batches struct {
	caller   renewal.Caller
	panicked func(v any, stack []byte)
	prepared atomic.Bool // the backend knows its servers

	mu      sync.Mutex
	waiting map[class]*batch

	calls, renewed atomic.Int64
}

// class is what the leases of a batch have in common: the node, and the time that they have, up to a factor of two. A
// call ends when the first of them must be answered, so others must not have far more time.
type class struct {
	node string
	time int // the number of bits of the time in ms
}

// batch has leases that wait for their call.
type batch struct {
	asks  []ask
	due   time.Time
	timer *time.Timer
}

// ask is a lease that a client wants to be renewed.
type ask struct {
	target renewal.Target
	until  time.Time // nothing may be renewed after that
	answer func(renewed bool, err error)
}

// prepare makes the backend learn its servers, if it doesn't know them yet.
func (b *batches) prepare(ctx context.Context, key string) (err error) {
	if b.prepared.Load() {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			b.panicked(v, debug.Stack())
			err = errPanicked
		}
	}()
	err = b.caller.Backend.Prepare(ctx, key)
	b.prepared.Store(err == nil)
	return err
}

// add adds leases of a node. Each is answered once, from another goroutine.
func (b *batches) add(node string, asks []ask) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, a := range asks {
		left := a.until.Sub(now)
		like := class{node, bits.Len64(uint64(max(left.Milliseconds(), 0)))}
		due := now.Add(left / gathering)
		next := b.waiting[like]
		if next == nil {
			next = &batch{due: due}
			next.timer = time.AfterFunc(due.Sub(now), func() { b.flush(like, next) })
			b.waiting[like] = next
		} else if due.Before(next.due) {
			next.due = due
			next.timer.Reset(due.Sub(now))
		}
		next.asks = append(next.asks, a)
		if len(next.asks) == watchdog.DefaultBatchSize {
			next.timer.Stop() // if it is too late, flush does nothing
			delete(b.waiting, like)
			go b.renew(node, next.asks)
		}
	}
}

// flush renews a batch that isn't full, unless it was full in the meantime.
func (b *batches) flush(like class, next *batch) {
	b.mu.Lock()
	waits := b.waiting[like] == next
	if waits {
		delete(b.waiting, like)
	}
	b.mu.Unlock()
	if waits {
		b.renew(like.node, next.asks)
	}
}

// renew renews leases in one attempt, and answers them.
func (b *batches) renew(node string, asks []ask) {
	a := &renewal.Attempt{Node: node, Results: make([]watchdog.Result, len(asks))}
	returned := false
	defer func() {
		if v := recover(); v != nil {
			b.panicked(v, debug.Stack())
		}
		for i, ask := range asks {
			switch {
			case !returned:
				ask.answer(false, errPanicked)
			case a.Results[i].Outcome == watchdog.Moved:
				ask.answer(false, redisfail.ErrElsewhere)
			default:
				ask.answer(a.Results[i].Outcome == watchdog.Renewed, a.Results[i].Err)
			}
		}
	}()
	until := asks[0].until
	for _, ask := range asks {
		a.Targets = append(a.Targets, ask.target)
		if ask.until.Before(until) {
			until = ask.until
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	ctx, span := b.caller.Recorder.StartBatch(ctx, node, len(asks), 0, true)
	err := b.caller.Renew(ctx, a)
	b.calls.Add(1)
	count, firstFailure := renewal.Count(a.Results)
	b.renewed.Add(int64(count[watchdog.Renewed]))
	span.End(count[watchdog.Renewed], count[watchdog.Missing], count[watchdog.Taken],
		count[watchdog.Failed]+count[watchdog.Moved], redisfail.Classify(firstFailure).Kind, err)
	returned = true
}

var (
	// errTooLate is the error of a request that came later than its client allows.
	errTooLate  = errors.New("it came too late")
	errPanicked = errors.New("the renewal has panicked; see the agent's log")
)

func targetOf(l agentlink.Lease) renewal.Target {
	return renewal.Target{
		Key: l.Key, Owner: l.Owner, Holding: l.Holding,
		Expiry: time.Duration(l.Milliseconds) * time.Millisecond, ExpiryArg: l.Milliseconds,
	}
}

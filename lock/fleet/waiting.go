package fleet

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// readWaiters reads the waiters: with b.all of every lock, otherwise only of those whose hash doesn't rule out waiters.
func (b *batch) readWaiters(ctx context.Context) error {
	pipe := b.node.Pipeline()
	var steps []func() // each handles replies; it may queue more commands and add a step for them
	then := func(step func()) { steps = append(steps, step) }
	for _, one := range b.still() {
		// A holder of Redisson has no mark that says whether there is a queue.
		if one.Kind != RW && (b.all || one.inQueue || len(one.Holders) > 0 && one.Holders[0].Redisson) {
			b.readQueue(ctx, pipe, one, then)
		}
		if one.Kind != RW && (b.all || one.marked) {
			b.readSet(ctx, pipe, one, then)
		}
		if one.Kind == RW || b.all && one.Held == 0 {
			b.readWriters(ctx, pipe, one, then)
		}
	}
	for len(steps) > 0 {
		if err := b.exec(ctx, pipe); err != nil {
			return err
		}
		now := steps
		steps = nil
		for _, step := range now {
			step()
		}
	}
	for _, one := range b.still() {
		slices.SortStableFunc(one.Waiters, func(a, b Waiter) int { return a.Since.Compare(b.Since) })
		one.Waiters = one.Waiters[:min(len(one.Waiters), Most)]
	}
	return nil
}

// readSet reads the clients in the wait set of a lock that isn't an RW. An entry may stay there after its client has
// given up or died. So entries are omitted if nobody listens to their client's channel.
func (b *batch) readSet(ctx context.Context, pipe redis.Pipeliner, one *reading, then func(func())) {
	key := script.WaitersKey(one.Key)
	size, entries := pipe.ZCard(ctx, key), pipe.ZRangeWithScores(ctx, key, 0, Most-1)
	then(func() {
		if otherType(size.Err()) || one.failed(size, entries) || len(entries.Val()) == 0 {
			return
		}
		var channels []string // per entry: where its client gets calls and grants of this lock
		for _, z := range entries.Val() {
			number, _, _ := strings.Cut(z.Member.(string), " ")
			channels = append(channels, script.Channel(one.Key)+":"+number)
		}
		var listening []*redis.MapStringIntCmd
		if !b.moved { // after a move we don't know which node to ask
			listening = append(listening, pipe.PubSubNumSub(ctx, channels...))
			if redis.UniversalClient(b.node) != b.rdb {
				// Servers before 7 don't know this subcommand.
				listening = append(listening, pipe.PubSubShardNumSub(ctx, channels...))
			}
		}
		then(func() {
			one.Waiting += max(int(size.Val())-len(channels), 0) // the set may have grown between the replies
			for i, z := range entries.Val() {
				if !gone(listening, channels[i]) {
					owner, traceparent := script.ParseEntry(z.Member.(string))
					one.Waiters = append(one.Waiters, waiterOf(owner, traceparent, time.UnixMicro(int64(z.Score))))
					one.Waiting++
				}
			}
		})
	})
}

// gone reports whether the server says that nobody listens to a channel. It is false if the server didn't say.
func gone(listening []*redis.MapStringIntCmd, channel string) bool {
	asked := false
	for _, cmd := range listening {
		switch {
		case redis.HasErrorPrefix(cmd.Err(), "NOPERM"), cmd.Val()[channel] > 0:
			return false
		case cmd.Err() == nil: // an error says nothing: the server may not know the subcommand
			asked = true
		}
	}
	return asked
}

// readWriters reads the writers that wait for an RW. A writer whose place has ended doesn't count: see rw.lua.
func (b *batch) readWriters(ctx context.Context, pipe redis.Pipeliner, one *reading, then func(func())) {
	key, after := script.WritersKey(one.Key), "("+strconv.FormatInt(b.now.UnixMilli(), 10)
	size, owners := pipe.ZCount(ctx, key, after, "+inf"), pipe.ZRangeByScore(ctx, key, &redis.ZRangeBy{
		Min: after, Max: "+inf", Count: Most,
	})
	then(func() {
		if otherType(size.Err()) || one.failed(size, owners) {
			return
		}
		one.Waiting += int(size.Val())
		for _, owner := range owners.Val() {
			one.Kind = RW
			one.Waiters = append(one.Waiters, waiterOf(owner, "", time.Time{}))
		}
	})
}

// readQueue reads the queue of a FairMutex. A waiter whose deadline has passed counts as dead: see fair_queue.lua. All
// waiters behind the first mostRead count as waiting.
func (b *batch) readQueue(ctx context.Context, pipe redis.Pipeliner, one *reading, then func(func())) {
	key := script.QueueKey(one.Key)
	size, owners := pipe.LLen(ctx, key), pipe.LRange(ctx, key, 0, mostRead-1)
	then(func() {
		if otherType(size.Err()) || one.failed(size, owners) || len(owners.Val()) == 0 {
			return
		}
		ours := pipe.ZMScore(ctx, script.QueueAliveKey(one.Key), owners.Val()...) // deadlines, ms; 0: none
		redissons := pipe.ZMScore(ctx, script.QueueTimeoutsKey(one.Key), owners.Val()...)
		then(func() {
			if one.failed(ours, redissons) {
				return
			}
			one.Waiting += max(int(size.Val())-mostRead, 0)
			for i, owner := range owners.Val() {
				if cmp.Or(ours.Val()[i], redissons.Val()[i]) > float64(b.now.UnixMilli()) {
					one.Kind = Fair
					one.Waiting++
					if len(one.Waiters) < Most {
						one.Waiters = append(one.Waiters, waiterOf(owner, "", time.Time{}))
					}
				}
			}
		})
	})
}

func waiterOf(owner, traceparent string, since time.Time) Waiter {
	w := Waiter{Owner: owner, ClientID: script.ClientIDOf(owner), Since: since}
	w.Redisson = w.ClientID == "" && script.IsOwner(owner)
	w.TraceID, w.SpanID = parseTrace(traceparent)
	return w
}

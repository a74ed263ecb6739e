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

// readWaiters reads the waiters: with b.all of every lock, otherwise only of one whose hash doesn't rule out waiters.
func (b *batch) readWaiters(ctx context.Context, one *reading) {
	if one.Kind != RW {
		// A holder of Redisson has no mark that says whether there is a queue.
		if b.all || one.inQueue || len(one.Holders) > 0 && one.Holders[0].Redisson {
			b.readQueue(ctx, one)
		}
		if b.all || one.marked {
			b.readSet(ctx, one)
		}
	}
	if one.Kind == RW || b.all && one.Held == 0 {
		b.readWriters(ctx, one)
	}
}

// readSet reads the clients in the wait set of a lock that isn't an RW. An entry may stay there after its client has
// given up or died. So readSet omits those of the first Most entries whose client's channel has no listener. All
// further entries count.
func (b *batch) readSet(ctx context.Context, one *reading) {
	key := script.WaitSetKey(one.Key)
	size, entries := b.pipe.ZCard(ctx, key), b.pipe.ZRangeWithScores(ctx, key, 0, Most-1)
	b.then(func() {
		if !otherType(size.Err()) && !one.failed(size, entries) && len(entries.Val()) > 0 {
			one.Waiting += max(int(size.Val())-len(entries.Val()), 0) // it may have grown between the replies
			b.readListening(ctx, one, entries.Val())
		}
	})
}

// readListening adds the waiters of a wait set's entries, except those of which the server says that their client
// doesn't listen.
func (b *batch) readListening(ctx context.Context, one *reading, entries []redis.Z) {
	channels := make([]string, len(entries)) // where the client of each entry gets wake-ups and grants
	for i, z := range entries {
		number, _, _ := strings.Cut(z.Member.(string), " ")
		channels[i] = script.Channel(one.Key) + ":" + number
	}
	var listening *redis.MapStringIntCmd
	switch {
	case b.moved: // we don't know which node to ask
	case b.cluster != nil:
		listening = b.pipe.PubSubShardNumSub(ctx, channels...)
	default:
		listening = b.pipe.PubSubNumSub(ctx, channels...)
	}
	b.then(func() {
		for i, z := range entries {
			if !gone(listening, channels[i]) {
				owner, traceparent := script.ParseEntry(z.Member.(string))
				one.addWaiter(owner, traceparent, time.UnixMicro(int64(z.Score)))
			}
		}
	})
}

// gone reports whether the server says that nobody listens to a channel. It is false if the server wasn't asked, or
// refused to say.
func gone(listening *redis.MapStringIntCmd, channel string) bool {
	return listening != nil && listening.Err() == nil && listening.Val()[channel] == 0
}

// readWriters reads the writers that wait for an RW. A writer whose place has ended doesn't count: see rw.lua.
func (b *batch) readWriters(ctx context.Context, one *reading) {
	key, after := script.WritersKey(one.Key), "("+strconv.FormatInt(b.now.UnixMilli(), 10)
	size := b.pipe.ZCount(ctx, key, after, "+inf")
	owners := b.pipe.ZRangeByScore(ctx, key, &redis.ZRangeBy{Min: after, Max: "+inf", Count: Most})
	b.then(func() {
		if otherType(size.Err()) || one.failed(size, owners) {
			return
		}
		one.Waiting += max(int(size.Val())-len(owners.Val()), 0)
		for _, owner := range owners.Val() {
			one.Kind = RW
			one.addWaiter(owner, "", time.Time{})
		}
	})
}

// readQueue reads the queue of a FairMutex. A waiter whose deadline has passed counts as dead: see fair_queue.lua. All
// waiters behind the first mostRead count as waiting.
func (b *batch) readQueue(ctx context.Context, one *reading) {
	key := script.QueueKey(one.Key)
	size, owners := b.pipe.LLen(ctx, key), b.pipe.LRange(ctx, key, 0, mostRead-1)
	b.then(func() {
		if otherType(size.Err()) || one.failed(size, owners) || len(owners.Val()) == 0 {
			return
		}
		one.Waiting += max(int(size.Val())-mostRead, 0)
		ours := b.pipe.ZMScore(ctx, script.QueueAliveKey(one.Key), owners.Val()...) // deadlines, ms; 0: none
		redissons := b.pipe.ZMScore(ctx, script.QueueTimeoutsKey(one.Key), owners.Val()...)
		b.then(func() {
			if one.failed(ours, redissons) {
				return
			}
			for i, owner := range owners.Val() {
				if cmp.Or(ours.Val()[i], redissons.Val()[i]) > float64(b.now.UnixMilli()) {
					one.Kind = Fair
					one.addWaiter(owner, "", time.Time{})
				}
			}
		})
	})
}

// sortWaiters sorts the waiters by Since, and keeps the first Most. Those of a queue keep their order, and come first:
// they have no Since.
func (l *Lock) sortWaiters() {
	slices.SortStableFunc(l.Waiters, func(a, b Waiter) int { return a.Since.Compare(b.Since) })
	l.Waiters = l.Waiters[:min(len(l.Waiters), Most)]
}

func (l *Lock) addWaiter(owner, traceparent string, since time.Time) {
	w := Waiter{Owner: owner, ClientID: script.ClientIDOf(owner), Since: since}
	w.Redisson = w.ClientID == "" && script.IsOwner(owner)
	w.TraceID, w.SpanID = parseTrace(traceparent)
	l.Waiters = append(l.Waiters, w)
	l.Waiting++
}

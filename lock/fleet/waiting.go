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

// mostQueue is how many of a queue are looked at: of a longer one the others count as alive.
const mostQueue = 10_000

// readWaiters reads who waits: of all, or of those that are marked.
func (b *batch) readWaiters(ctx context.Context) error {
	for _, step := range []func(context.Context) error{b.readQueues, b.readSets, b.readWriters} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for _, one := range b.still() {
		slices.SortStableFunc(one.Waiters, func(a, b Waiter) int { return a.Since.Compare(b.Since) })
		one.Waiters = one.Waiters[:min(len(one.Waiters), Most)]
	}
	return nil
}

// waitSet is what is read of the clients that wait for a lock which is no RW.
type waitSet struct {
	of        *reading
	size      *redis.IntCmd
	entries   *redis.ZSliceCmd
	channels  []string                 // of each entry: where its client would be granted the lock
	listening []*redis.MapStringIntCmd // how many listen there
}

// readSets reads the wait sets. An entry stays there until the next release, though its client has given up or is dead: so those are left out to whose channel
// nobody listens.
func (b *batch) readSets(ctx context.Context) error {
	var sets []*waitSet
	pipe := b.from.Pipeline()
	for _, one := range b.still() {
		if one.Kind != RW && (b.all || one.marked) {
			key := script.WaitersKey(one.Key)
			sets = append(sets, &waitSet{of: one, size: pipe.ZCard(ctx, key), entries: pipe.ZRangeWithScores(ctx, key, 0, Most-1)})
		}
	}
	if err := exec(ctx, pipe); err != nil {
		return err
	}
	sets = slices.DeleteFunc(sets, func(s *waitSet) bool {
		return otherType(s.size.Err()) || s.of.failed(s.size, s.entries) || len(s.entries.Val()) == 0
	})
	if _, one := b.from.(*redis.Client); one { // a client of a whole Cluster could ask any node
		for _, s := range sets {
			for _, z := range s.entries.Val() {
				entry, _ := z.Member.(string)
				number, _, _ := strings.Cut(entry, " ")
				s.channels = append(s.channels, script.Channel(s.of.Key)+":"+number)
			}
			s.listening = append(s.listening, pipe.PubSubNumSub(ctx, s.channels...))
			if b.shards {
				s.listening = append(s.listening, pipe.PubSubShardNumSub(ctx, s.channels...)) // unknown to servers before 7
			}
		}
		if err := exec(ctx, pipe); err != nil {
			return err
		}
	}
	for _, s := range sets {
		s.add()
	}
	return nil
}

// add adds the clients that wait.
func (s *waitSet) add() {
	entries := s.entries.Val()
	s.of.Waiting += int(s.size.Val()) - len(entries)
	for i, z := range entries {
		if s.gone(i) {
			continue
		}
		entry, _ := z.Member.(string)
		owner, traceparent := script.ParseEntry(entry)
		w := waiterOf(owner)
		w.Since = time.UnixMicro(int64(z.Score))
		w.TraceID, w.SpanID = parseTrace(traceparent)
		s.of.Waiters = append(s.of.Waiters, w)
		s.of.Waiting++
	}
}

// gone reports whether nobody listens for an entry, as far as the server says.
func (s *waitSet) gone(entry int) bool {
	asked := false
	for _, cmd := range s.listening {
		switch {
		case redis.HasErrorPrefix(cmd.Err(), "NOPERM"):
			return false
		case cmd.Err() != nil: // an unknown subcommand
		case cmd.Val()[s.channels[entry]] > 0:
			return false
		default:
			asked = true
		}
	}
	return asked
}

// readWriters reads the writers that wait for an RW. One whose deadline is past has stopped waiting: see rw.lua.
func (b *batch) readWriters(ctx context.Context) error {
	type writers struct {
		of     *reading
		size   *redis.IntCmd
		owners *redis.StringSliceCmd
	}
	var all []writers
	after := "(" + strconv.FormatInt(b.now.UnixMilli(), 10)
	pipe := b.from.Pipeline()
	for _, one := range b.still() {
		if one.Kind == RW || b.all && one.Held == 0 {
			key := script.WritersKey(one.Key)
			all = append(all, writers{one, pipe.ZCount(ctx, key, after, "+inf"), pipe.ZRangeByScore(ctx, key, &redis.ZRangeBy{Min: after, Max: "+inf", Count: Most})})
		}
	}
	if err := exec(ctx, pipe); err != nil {
		return err
	}
	for _, w := range all {
		if otherType(w.size.Err()) || w.of.failed(w.size, w.owners) {
			continue
		}
		w.of.Waiting += int(w.size.Val())
		for _, owner := range w.owners.Val() {
			w.of.Kind = RW
			w.of.Waiters = append(w.of.Waiters, waiterOf(owner))
		}
	}
	return nil
}

// readQueues reads the queues of FairMutexes. One whose deadline is past has stopped waiting: see fair_queue.lua.
func (b *batch) readQueues(ctx context.Context) error {
	type queue struct {
		of              *reading
		size            *redis.IntCmd
		owners          *redis.StringSliceCmd
		ours, redissons *redis.FloatSliceCmd // deadlines, ms; 0: none
	}
	var queues []*queue
	pipe := b.from.Pipeline()
	for _, one := range b.still() {
		if one.Kind != RW && (b.all || one.inQueue || one.redissons()) {
			key := script.QueueKey(one.Key)
			queues = append(queues, &queue{of: one, size: pipe.LLen(ctx, key), owners: pipe.LRange(ctx, key, 0, mostQueue-1)})
		}
	}
	if err := exec(ctx, pipe); err != nil {
		return err
	}
	queues = slices.DeleteFunc(queues, func(q *queue) bool {
		return otherType(q.size.Err()) || q.of.failed(q.size, q.owners) || len(q.owners.Val()) == 0
	})
	for _, q := range queues {
		q.ours = pipe.ZMScore(ctx, script.QueueAliveKey(q.of.Key), q.owners.Val()...)
		q.redissons = pipe.ZMScore(ctx, script.QueueTimeoutsKey(q.of.Key), q.owners.Val()...)
	}
	if err := exec(ctx, pipe); err != nil {
		return err
	}
	for _, q := range queues {
		if q.of.failed(q.ours, q.redissons) {
			continue
		}
		q.of.Waiting += max(int(q.size.Val())-mostQueue, 0)
		for i, owner := range q.owners.Val() {
			if cmp.Or(q.ours.Val()[i], q.redissons.Val()[i]) <= float64(b.now.UnixMilli()) {
				continue
			}
			q.of.Kind = Fair
			q.of.Waiting++
			if len(q.of.Waiters) < Most {
				q.of.Waiters = append(q.of.Waiters, waiterOf(owner))
			}
		}
	}
	return nil
}

// redissons reports whether a Redisson client holds the lock. Nothing says then whether there is a queue.
func (one *reading) redissons() bool { return len(one.Holders) > 0 && one.Holders[0].Redisson }

func waiterOf(owner string) Waiter {
	id := script.ClientIDOf(owner)
	return Waiter{Owner: owner, ClientID: id, Redisson: id == "" && script.IsOwner(owner)}
}

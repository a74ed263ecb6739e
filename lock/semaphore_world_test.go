package lock_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Semaphores and latches in a cluster.

// TestSemaphoreCluster takes turns on one cluster of three.
func TestSemaphoreCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	t.Run("all of a name share its slot", func(t *testing.T) { numbersShareASlot(t, c) })
	t.Run("a waiter is woken", func(t *testing.T) { wokenInACluster(t, c) })
	t.Run("a slot moves", func(t *testing.T) { numbersMove(t, c) })
	t.Run("a latch with a tag", func(t *testing.T) { latchWithATag(t, c) })
}

func numbersShareASlot(t *testing.T, c *redistest.Cluster) {
	rdb := openCluster(t, c)
	for _, prefix := range []string{"", "{app}:", "p{q}r"} {
		for i, name := range []string{"a", "orders:42", "{user7}:mail", "x{y}z{w}"} {
			client := newScope(t).open(t, rdb, lock.WithKeyPrefix(prefix))
			ctx, slot := t.Context(), c.Slot(t, prefix+name)
			must(t, "Release", client.UnleasedSemaphore(name).Release(ctx, 2))
			must(t, "Acquire", client.UnleasedSemaphore(name).Acquire(ctx, 1))
			l := try(t, client.Semaphore(name))
			keys, err := c.Owner(t, slot).Client(t).ClusterGetKeysInSlot(ctx, slot, 100).Result()
			must(t, "keys", err)
			total := int64(0)
			for _, n := range c.Nodes {
				total += n.Client(t).DBSize(ctx).Val()
			}
			// The number, the permits, the token counter, and a receipt.
			if total != 4 || len(keys) != 4 || !slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(k, ":lockdog_receipt:") }) {
				t.Errorf("%q %d: the slot has %q, the cluster %d keys", prefix, i, keys, total)
			}
			free(t, l)
			for _, k := range keys {
				rdb.Del(ctx, k)
			}
		}
	}
}

// The channel of a name with a tag is in the slot of its keys.
func wokenInACluster(t *testing.T, c *redistest.Cluster) {
	const name = "{tag}pool"
	s := newScope(t)
	waiter := s.open(t, openCluster(t, c), lock.WithLease(time.Hour))
	node := c.Owner(t, c.Slot(t, name))
	next := acquiring(t.Context(), waiter.UnleasedSemaphore(name), 1)
	waiting(t, waiter, 1)
	eventually(t, patience, func() bool { return len(shardChannels(t, node)) == 1 })
	must(t, "Release", newScope(t).open(t, openCluster(t, c)).UnleasedSemaphore(name).Release(t.Context(), 1))
	must(t, "Acquire", await(t, "Acquire", next))
	if n := s.sum(t, telemetry.MetricTakeovers); n != 0 {
		t.Errorf("the release wasn't heard: %v", s.series(t, telemetry.MetricTakeovers))
	}
}

// While a slot moves, a script with several of its keys is refused; what was given is there when it has moved, leases are kept
// alive, and waiters get in.
func numbersMove(t *testing.T, c *redistest.Cluster) {
	ctx := t.Context()
	const lease = 12 * time.Second
	client := newScope(t).open(t, openCluster(t, c), lock.WithLease(lease))
	waiter := newScope(t).open(t, openCluster(t, c), lock.WithLease(10*time.Second)) // has patience for so long
	p := permits(t, client, "{moving}leased", 1)
	l := try(t, p)
	must(t, "Release", client.UnleasedSemaphore("{moving}bare").Release(ctx, 1))
	must(t, "Acquire", client.UnleasedSemaphore("{moving}bare").Acquire(ctx, 1))
	bare, leased := acquiring(ctx, waiter.UnleasedSemaphore("{moving}bare"), 1), begin(ctx, waiter.Semaphore("{moving}leased"))
	waiting(t, waiter, 2)

	slot := c.Slot(t, "{moving}")
	m := c.Migrate(t, slot, otherNode(t, c, slot))
	m.MoveKeys(t, "{moving}bare", "{moving}leased:timeout")
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := client.UnleasedSemaphore("{moving}bare").Release(short, 1); err == nil {
		t.Error("Release while the slot moves: no error")
	}
	since := time.Now()
	renewedPast(t, l, since.Add(lease*9/10)) // by a call that was made since
	m.Finish(t)
	must(t, "Acquire", await(t, "Acquire", bare))
	free(t, l)
	free(t, granted(t, leased))
	mustBe(t, "bare permits", available(t, client.UnleasedSemaphore("{moving}bare")), 0)
	mustBe(t, "permits with leases", available(t, p), 1)
}

// A Cluster's latch can't have braces in its name: Redisson's channel for it is in another slot.
func latchWithATag(t *testing.T, c *redistest.Cluster) {
	ctx := t.Context()
	client := newScope(t).open(t, openCluster(t, c))
	tagged := client.Latch("{tag}gate")
	for what, err := range map[string]error{
		"TrySetCount": second(tagged.TrySetCount(ctx, 1)), "CountDown": tagged.CountDown(ctx), "Wait": tagged.Wait(ctx),
	} {
		mustMatch(t, err, lock.ErrInvalid)
		if !strings.Contains(err.Error(), "without braces") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, n := range c.Nodes {
		if size := n.Client(t).Exists(ctx, "{tag}gate").Val(); size != 0 {
			t.Error("it was set all the same")
		}
	}
	d := newDeskAt(t, redistest.Shared(t)) // on one server it is well
	single := d.client()
	l := closed(t, single, "{tag}gate", 1)
	opened := awaiting(ctx, l)
	waiting(t, single, 1)
	must(t, "CountDown", l.CountDown(ctx))
	must(t, "Wait", await(t, "Wait", opened))
}

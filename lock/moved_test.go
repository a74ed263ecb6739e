package lock_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What the log says of subscriptions while a cluster changes.

var (
	subscriptionRefused = telemetry.Log{Message: "lockdog: Redis refuses the subscription for wake-ups; waiters poll", Level: slog.LevelWarn}
	subscriptionTaken   = telemetry.Log{Message: "lockdog: Redis takes the subscription for wake-ups again", Level: slog.LevelInfo}
)

// A slot that moves under its waiters is ordinary: their subscriptions follow, and the log has nothing to say.
func TestSlotMoveIsNoNews(t *testing.T) {
	t.Parallel()
	const names = 20
	c := redistest.StartCluster(t, 0)
	holder := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	s := newScope(t)
	waiter := s.open(t, openCluster(t, c), lock.WithLease(far))
	var held []*lock.Lease
	var next []<-chan taken
	for i := range names {
		name := fmt.Sprintf("{moving}%d", i)
		held = append(held, try(t, holder.Mutex(name)))
		next = append(next, begin(context.Background(), waiter.Mutex(name)))
	}
	asleep(t, waiter, names)
	slot := c.Slot(t, "{moving}")
	for range 3 {
		to := otherNode(t, c, slot)
		c.Migrate(t, slot, to).Finish(t)
		eventually(t, patience, func() bool { return len(lockChannels(t, to)) == names })
		asleep(t, waiter, names)
	}
	for i := range names {
		free(t, mustWake(t, "after the moves", held[i], next[i]))
	}
	if got := append(s.records(t, subscriptionRefused), s.records(t, subscriptionTaken)...); len(got) != 0 {
		t.Errorf("%d log records: %v", len(got), got[0])
	}
}

// A cluster that stays incomplete is news, once, and so is its recovery.
func TestIncompleteClusterIsNewsOnce(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.WithConfig("cluster-allow-pubsubshard-when-down", "no"))
	name := namesOn(t, c, c.Nodes[0], 1)[0]
	s := newScope(t)
	waiter := s.open(t, openCluster(t, c), lock.WithLease(far))
	l := try(t, newScope(t).open(t, openCluster(t, c), lock.WithLease(far)).Mutex(name))
	next := behindNode(t, waiter, waiter.Mutex(name))
	c.Nodes[2].Kill(t)
	c.Notice(t)
	eventually(t, patience, func() bool {
		return strings.Contains(c.Nodes[0].Client(t).ClusterInfo(t.Context()).Val(), "cluster_state:fail")
	})
	must(t, "CLIENT KILL", c.Nodes[0].Client(t).Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	eventually(t, 2*patience, func() bool { return len(s.records(t, subscriptionRefused)) > 0 })
	tries := s.refused(t, "subscribe", "clusterdown")
	eventually(t, 2*patience, func() bool { return s.refused(t, "subscribe", "clusterdown") >= tries+2 }) // and nothing is said of them
	c.Nodes[2].Restart(t, redistest.KeepData)
	eventually(t, 2*patience, func() bool { return len(s.records(t, subscriptionTaken)) > 0 })
	asleep(t, waiter, 1)
	if refused, again := len(s.records(t, subscriptionRefused)), len(s.records(t, subscriptionTaken)); refused != 1 || again != 1 {
		t.Errorf("it was said %d times that the subscription is refused, and %d times that it isn't any more", refused, again)
	}
	free(t, mustWake(t, "complete again", l, next))
}

package lock_test

import (
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

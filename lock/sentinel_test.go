package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// TestSentinelFailover has a lock held and awaited while its primary steps down, and once more when it dies. The new primary tells of losses, as the
// old one did.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	const lease = 15 * time.Second
	servers := redistest.StartSentinel(t, 1)
	hs, ws := newScope(t), newScope(t)
	holder := hs.open(t, redistest.Open(t, servers.Universal()), lock.WithLease(lease))
	waiter := ws.open(t, redistest.Open(t, servers.Universal()), lock.WithLease(lease))
	notified := newScope(t).open(t, redistest.Open(t, servers.Universal()), lock.WithLossNotifications(), lock.WithLease(far))
	for _, turn := range []struct {
		what string
		fail func() *redistest.Server
	}{
		{"graceful", func() *redistest.Server { return servers.Failover(t) }},
		{"killed", func() *redistest.Server {
			old := servers.Primary(t)
			old.Kill(t)
			return servers.AwaitFailover(t, old)
		}},
	} {
		primary := servers.Primary(t)
		awaitReplica(t, primary)
		l := try(t, holder.Mutex("job"))
		awaited := try(t, holder.Mutex("awaited", lock.WithLease(far)))
		next := begin(context.Background(), waiter.Mutex("awaited"))
		waiting(t, waiter, 1)
		watched, kept := try(t, notified.Mutex("watched")), try(t, notified.Mutex("kept"))
		replicated(t, primary)
		before, began := l.Deadline(), time.Now()
		now := turn.fail()
		elected := time.Since(began)
		eventually(t, 2*lease, func() bool { return l.Deadline().After(before) || l.Err() != nil })
		if l.Err() != nil || l.Context().Err() != nil {
			t.Fatalf("%s: the lease ended: %v", turn.what, l.Err())
		}
		renewed := time.Since(began)
		if h, err := holder.Mutex("job").Inspect(t.Context()); err != nil || h.Token != l.Token() || h.Owner != l.Owner() {
			t.Errorf("%s: %+v, %v; held by %q with token %d", turn.what, h, err, l.Owner(), l.Token())
		}
		// The waiter is heard of on the new primary, and woken by a message.
		eventually(t, patience, func() bool {
			n, err := now.Client(t).PubSubNumSub(t.Context(), "redisson_lock__channel:{awaited}").Result()
			return err == nil && n["redisson_lock__channel:{awaited}"] == 1
		})
		free(t, awaited)
		got := granted(t, next)
		if got.Token() <= awaited.Token() {
			t.Errorf("%s: token %d after %d", turn.what, got.Token(), awaited.Token())
		}
		free(t, got)
		free(t, l)
		eventually(t, patience, func() bool { return now.Commands(t)["hmget"] >= 2 })
		mustAllLive(t, []*lock.Lease{watched, kept})
		transact(t, now.Client(t), "DEL KEY", "watched")
		mustBeLost(t, watched, lock.CauseMissing)
		free(t, kept)
		t.Logf("%s: elected %v, renewed %v after it began\nholder: errors %v, renewals %v, losses %v\nwaiter: errors %v, reconnects %v",
			turn.what, elected.Round(time.Millisecond), renewed.Round(time.Millisecond),
			errorsOf(t, hs), hs.series(t, telemetry.MetricRenewals), hs.sum(t, telemetry.MetricLosses),
			errorsOf(t, ws), ws.sum(t, telemetry.MetricPubSubReconnects))
		if turn.what == "graceful" { // the old one follows the new
			awaitReplica(t, now)
		}
	}
}

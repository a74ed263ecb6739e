package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// TestStalePrimary has a primary stand still until Sentinel has replaced it, and then go on: it still takes itself for the primary, and answers.
// What the client does must happen at the new one. Sentinel can't demote the old one, as under a partition between the two.
func TestStalePrimary(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*redistest.Sentinel) redis.UniversalClient{
		"FailoverClient": func(s *redistest.Sentinel) redis.UniversalClient {
			return redis.NewFailoverClient(s.Universal().Failover())
		},
		"FailoverClusterClient": func(s *redistest.Sentinel) redis.UniversalClient {
			return redis.NewFailoverClusterClient(s.Universal().Failover())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stalePrimary(t, open)
		})
	}
}

func stalePrimary(t *testing.T, open func(*redistest.Sentinel) redis.UniversalClient, opts ...lock.Option) {
	const lease = 9 * time.Second
	servers := redistest.StartSentinel(t, 1)
	client := func() *lock.Client {
		rdb := open(servers)
		t.Cleanup(func() { _ = rdb.Close() })
		return newScope(t).open(t, rdb, append(opts, lock.WithWatchdog(lease))...)
	}
	holder, waiter, other := client(), client(), client()

	l := try(t, holder.Mutex("job"))
	awaited := try(t, holder.Mutex("awaited"))
	told := try(t, holder.Mutex("told"))
	next := begin(context.Background(), waiter.Mutex("awaited"))
	waiting(t, waiter, 1)
	renewedPast(t, l, l.Deadline())
	old := servers.Primary(t)
	awaitReplica(t, old)
	replicated(t, old)
	servers.CutOff(t, old)
	old.Pause(t)
	now := servers.AwaitFailover(t, old)
	old.Resume(t)
	switched := time.Now()

	// While the lease lives nobody else gets the lock: its renewals are made where others ask for it.
	for time.Since(switched) < 3*lease/2 {
		got, err := other.Mutex("job", lock.WithWait(lease/10)).Lock(t.Context())
		if err == nil {
			t.Fatalf("a second holder, %v after the switch; the first: %v", time.Since(switched), l.Context().Err())
		}
		if l.Err() != nil {
			t.Fatalf("the lease ended %v after the switch, though its lock lived on: %v", time.Since(switched), l.Err())
		}
		mustMatch(t, err, lock.ErrHeld)
		_ = got
	}
	if has, err := now.Client(t).HExists(t.Context(), "job", l.Owner()).Result(); err != nil || !has {
		t.Errorf("the new primary doesn't have the owner %q: %v", l.Owner(), err)
	}

	// Messages are heard there, too: those for waiters and those for holders.
	released := time.Now()
	free(t, awaited)
	got := granted(t, next)
	if woken := time.Since(released); woken > lease/3 {
		t.Errorf("woken %v after the release", woken)
	}
	free(t, got)
	forced := time.Now()
	if was, err := other.Mutex("told").ForceUnlock(t.Context()); err != nil || !was {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	mustBeLost(t, told, lock.CauseMissing)
	if after := time.Since(forced); after > lease/6 {
		t.Errorf("told of the forced unlock after %v", after)
	}
	free(t, l)
}

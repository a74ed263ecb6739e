package lock_test

import (
	"context"
	"fmt"
	"net"
	"strings"
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
	const lease = 15 * time.Second
	servers := redistest.StartSentinel(t, 1)
	client := func() *lock.Client {
		rdb := open(servers)
		t.Cleanup(func() { _ = rdb.Close() })
		return newScope(t).open(t, rdb, append(opts, lock.WithLease(lease))...)
	}
	holder, waiter, other := client(), client(), client()

	l := try(t, holder.Mutex("job"))
	awaited := try(t, holder.Mutex("awaited", lock.WithLease(far)))
	told := try(t, holder.Mutex("told", lock.WithLease(far)))
	next := begin(context.Background(), waiter.Mutex("awaited"))
	waiting(t, waiter, 1)
	old := servers.Primary(t)
	awaitReplica(t, old)
	replicated(t, old)
	servers.CutOff(t, old)
	old.Pause(t)
	now := servers.AwaitFailover(t, old)
	old.Resume(t)
	switched := time.Now()

	// While the lease lives nobody else gets the lock: its renewals are made where others ask for it.
	renewedPast(t, l, switched.Add(lease))
	if l.Err() != nil {
		t.Fatalf("the lease ended, though its lock lived on: %v", l.Err())
	}
	end, elected := l.Deadline(), now.Client(t)
	if has, err := elected.HExists(t.Context(), "job", l.Owner()).Result(); err != nil || !has {
		t.Errorf("the new primary doesn't have the owner %q: %v", l.Owner(), err)
	}
	if left := elected.PTTL(t.Context(), "job").Val(); time.Now().Add(left).Before(end) {
		t.Errorf("the new primary has the lock for another %v, its holder for %v", left, time.Until(end))
	}
	mustMatch(t, second(other.Mutex("job").TryLock(t.Context())), lock.ErrHeld)

	// Messages are heard there, too: those for waiters and those for holders. Their leases are far longer than we wait.
	free(t, awaited)
	free(t, granted(t, next))
	control := "lockdog:control:" + told.Owner()[:strings.LastIndexByte(told.Owner(), '-')]
	eventually(t, patience, func() bool { return elected.PubSubNumSub(t.Context(), control).Val()[control] == 1 }) // since the renewal above
	if was, err := other.Mutex("told").ForceUnlock(t.Context()); err != nil || !was {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	mustBeLost(t, told, lock.CauseForced)
	free(t, l)
}

// TestSilentSentinel has the Sentinel that a client asks fall silent together with the primary, which goes on when it has been replaced. The client
// can't know of that, so nothing that the old primary says may count.
func TestSilentSentinel(t *testing.T) {
	t.Parallel()
	for _, cluster := range []bool{false, true} {
		t.Run(fmt.Sprintf("cluster client %v", cluster), func(t *testing.T) {
			t.Parallel()
			const lease = 12 * time.Second
			servers := redistest.StartSentinel(t, 1)
			silent, others := servers.Sentinels[0], servers.Sentinels[1:]
			client := func(sentinels ...*redistest.Server) *lock.Client {
				o := servers.Universal()
				o.Addrs, o.IsClusterMode = nil, cluster
				for _, s := range sentinels {
					o.Addrs = append(o.Addrs, s.Addr()) // go-redis learns of the rest, but asks the first that answered
				}
				return newScope(t).open(t, redistest.Open(t, o), lock.WithLease(lease))
			}
			holder, other := client(silent), client(others...)
			l := try(t, holder.Mutex("job"))
			old := servers.Primary(t)
			awaitReplica(t, old)
			replicated(t, old)
			servers.CutOff(t, old)
			servers.Notice(t)
			silent.Pause(t)
			old.Pause(t)
			asked := redis.NewSentinelClient(&redis.Options{Addr: others[0].Addr()})
			defer func() { _ = asked.Close() }()
			eventually(t, 2*patience, func() bool {
				named, err := asked.GetMasterAddrByName(t.Context(), redistest.SentinelName).Result()
				return err == nil && net.JoinHostPort(named[0], named[1]) != old.Addr()
			})
			old.Resume(t)
			got, err := other.Mutex("job", lock.WithWait(3*lease)).Lock(t.Context())
			if err == nil && l.Context().Err() == nil {
				t.Errorf("two holders: the first is trusted for another %v", time.Until(l.Deadline()))
			}
			silent.Resume(t)
			if err == nil {
				free(t, got)
			} else {
				mustMatch(t, err, lock.ErrHeld) // the first holder has found the new primary
				free(t, l)
			}
		})
	}
}

// TestSentinelsDie has all Sentinels die. The primary is well, so a lease lives, unless it is shorter than go-redis takes to find out that it has
// nobody to ask.
func TestSentinelsDie(t *testing.T) {
	t.Parallel()
	const lease = time.Minute // go-redis takes 10 s
	servers := redistest.StartSentinel(t, 1)
	var leases []*lock.Lease
	for i, cluster := range []bool{false, true} {
		o := servers.Universal()
		o.IsClusterMode = cluster
		c := newScope(t).open(t, redistest.Open(t, o), lock.WithLease(lease))
		leases = append(leases, try(t, c.Mutex(fmt.Sprint("job", i))))
	}
	for _, s := range servers.Sentinels {
		s.Kill(t)
	}
	died := time.Now()
	for _, l := range leases {
		eventually(t, 2*lease, func() bool { return l.Err() != nil || l.Deadline().After(died.Add(lease)) })
		if l.Err() != nil {
			t.Fatalf("the lease ended: %v", l.Err())
		}
	}
	freeAll(t, leases)
}

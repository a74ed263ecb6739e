package lock_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// TestStalePrimary has a primary stand still until Sentinel has replaced it, and then go on: it still takes itself for the primary, and answers.
// What the client does, of either kind, must happen at the new one. Sentinel can't demote the old one, as under a partition between the two.
func TestStalePrimary(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t, 1)
	old := servers.Primary(t)
	awaitReplica(t, old)
	var checks []func(now *redistest.Server, switched time.Time)
	for _, cluster := range bothClients {
		checks = append(checks, beforeTheSwitch(t, servers, cluster))
	}
	replicated(t, old)
	servers.CutOff(t, old)
	old.Pause(t)
	now := servers.AwaitFailover(t, old)
	old.Resume(t)
	switched := time.Now()
	for _, check := range checks {
		check(now, switched)
	}
}

// bothClients are go-redis's for Sentinel, by whether they are cluster clients.
var bothClients = []bool{false, true}

// openSentinel opens a client that asks these Sentinels, all if none is named.
func openSentinel(t *testing.T, s *redistest.Sentinel, cluster bool, lease time.Duration, sentinels ...*redistest.Server) *lock.Client {
	t.Helper()
	o := s.Universal()
	o.IsClusterMode = cluster
	if len(sentinels) > 0 {
		o.Addrs = nil
	}
	for _, s := range sentinels {
		o.Addrs = append(o.Addrs, s.Addr()) // go-redis learns of the rest, but asks the first that answered
	}
	return newScope(t).open(t, redistest.Open(t, o), lock.WithLease(lease))
}

// beforeTheSwitch takes locks and waits for one, and returns what is to be seen of them when another server is the primary.
func beforeTheSwitch(t *testing.T, servers *redistest.Sentinel, cluster bool) (check func(now *redistest.Server, switched time.Time)) {
	const lease = 15 * time.Second
	client := func() *lock.Client { return openSentinel(t, servers, cluster, lease) }
	holder, waiter, other := client(), client(), client()
	job := fmt.Sprintf("cluster client %v: ", cluster)
	l := try(t, holder.Mutex(job))
	awaited := try(t, holder.Mutex(job+"awaited", lock.WithLease(far)))
	told := try(t, holder.Mutex(job+"told", lock.WithLease(far)))
	next := begin(context.Background(), waiter.Mutex(job+"awaited"))
	waiting(t, waiter, 1)
	return func(now *redistest.Server, switched time.Time) {
		// While the lease lives nobody else gets the lock: its renewals are made where others ask for it.
		renewedPast(t, l, switched.Add(lease))
		if l.Err() != nil {
			t.Fatalf("the lease ended, though its lock lived on: %v", l.Err())
		}
		end, elected := l.Deadline(), now.Client(t)
		if has, err := elected.HExists(t.Context(), job, l.Owner()).Result(); err != nil || !has {
			t.Errorf("the new primary doesn't have the owner %q: %v", l.Owner(), err)
		}
		if left := elected.PTTL(t.Context(), job).Val(); time.Now().Add(left).Before(end) {
			t.Errorf("the new primary has the lock for another %v, its holder for %v", left, time.Until(end))
		}
		mustMatch(t, second(other.Mutex(job).TryLock(t.Context())), lock.ErrHeld)

		// Messages are heard there, too: those for waiters and those for holders. Their leases are far longer than we wait.
		free(t, awaited)
		free(t, granted(t, next))
		control := controlOf(told.Owner())
		eventually(t, patience, func() bool { return elected.PubSubNumSub(t.Context(), control).Val()[control] == 1 }) // since the renewal above
		eventually(t, patience, func() bool {
			if isToldOfForce(t, told, other.Mutex(job+"told")) {
				return true
			}
			told = try(t, holder.Mutex(job+"told", lock.WithLease(far)))
			return false
		})
		free(t, l)
	}
}

// TestSilentSentinel has the Sentinel that clients ask fall silent together with the primary, which goes on when it has been replaced. They can't
// know of that, so nothing that the old primary says may count.
func TestSilentSentinel(t *testing.T) {
	t.Parallel()
	const lease = 12 * time.Second
	servers := redistest.StartSentinel(t, 1)
	silent, others := servers.Sentinels[0], servers.Sentinels[1:]
	old := servers.Primary(t)
	awaitReplica(t, old)
	held := make(map[bool]*lock.Lease)
	for _, cluster := range bothClients {
		held[cluster] = try(t, openSentinel(t, servers, cluster, lease, silent).Mutex(fmt.Sprint("cluster client ", cluster)))
	}
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
	next := make(map[bool]<-chan taken)
	for cluster, l := range held {
		other := openSentinel(t, servers, cluster, lease, others...)
		next[cluster] = begin(t.Context(), other.Mutex(l.Name(), lock.WithWait(3*lease)))
	}
	for cluster, l := range held {
		got := <-next[cluster]
		if got.err != nil { // the first holder has found the new primary
			mustMatch(t, got.err, lock.ErrHeld)
			free(t, l)
			continue
		}
		if l.Context().Err() == nil {
			t.Errorf("%s: two holders: the first is trusted for another %v", l.Name(), time.Until(l.Deadline()))
		}
		free(t, got.Lease)
	}
	silent.Resume(t)
}

// TestSentinelsDie has all Sentinels die. The primary is well, so a lease lives, unless it is shorter than go-redis takes to find out that it has
// nobody to ask.
func TestSentinelsDie(t *testing.T) {
	t.Parallel()
	const lease = time.Minute // go-redis takes 10 s
	servers := redistest.StartSentinel(t, 1)
	primary := servers.Primary(t).Client(t)
	var leases []*lock.Lease
	for _, cluster := range bothClients {
		l := try(t, openSentinel(t, servers, cluster, lease).Mutex(fmt.Sprint("cluster client ", cluster)))
		eventually(t, patience, func() bool {
			return primary.PubSubNumSub(t.Context(), controlOf(l.Owner())).Val()[controlOf(l.Owner())] == 1
		})
		leases = append(leases, l)
	}
	for _, s := range servers.Sentinels {
		s.Kill(t)
	}
	died := time.Now()
	for _, l := range leases {
		haveLook(t, primary, l.Owner()) // rather than when a third of the lease has passed
	}
	for _, l := range leases {
		eventually(t, 2*lease, func() bool { return l.Err() != nil || l.Deadline().After(died.Add(lease)) })
	}
	mustAllLive(t, leases)
	freeAll(t, leases)
}

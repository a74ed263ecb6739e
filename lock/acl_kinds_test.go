package lock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// aclKinds maps the Kind of each row of package acl to a function that makes the calls for which the row's rules are
// needed. A row other than Mutex only has the calls that need more than the Mutex's rules. The function returns the
// first error.
var aclKinds = map[string]func(u *aclUser) error{
	"Mutex":                 toTheFirstError(mutexCalls),
	"one of several":        toTheFirstError(calledCalls),
	"WithWaitGraph":         toTheFirstError(graphCalls),
	"FairMutex":             toTheFirstError(fairCalls),
	"RWMutex":               toTheFirstError(rwCalls),
	"Semaphore":             toTheFirstError(semaphoreCalls),
	"UnleasedSemaphore":     toTheFirstError(unleasedCalls),
	"Latch":                 toTheFirstError(latchCalls),
	"Multi":                 toTheFirstError(multiCalls),
	"Quorum":                toTheFirstError(quorumCalls),
	"WithRedissonTokens":    toTheFirstError(tokenCalls),
	"WithReplicas":          toTheFirstError(replicaCalls),
	"WithLossNotifications": toTheFirstError(lossCalls),
	aclCluster:              toTheFirstError(clusterCalls),
}

const aclCluster = "on a Cluster"

// mutexCalls are all that a program does with a Mutex, beside a client that may do everything.
func mutexCalls(u *aclUser) {
	admin := u.admin()
	c, other := u.client(), newScope(u.t).open(u.t, admin)
	name, forced, lost := u.name+":1", u.name+":2", u.name+":3"
	m, channel := c.Mutex(name), "redisson_lock__channel:{"+name+"}"
	listening := func() bool { return admin.PubSubNumSub(u.ctx, channel).Val()[channel] > 0 }
	l := u.take(m)
	u.renewed(l)
	u.mustFail("a second TryLock", second(m.TryLock(u.ctx)), lock.ErrHeld)
	u.must("Inspect", second(m.Inspect(u.ctx)))
	l = u.handsOver(c, m, l)
	u.until("unsubscribed", func() bool { return !listening() })
	stranger := begin(u.ctx, other.Mutex(name))
	u.until("the stranger listens", listening)
	u.free(l)
	l = u.got(stranger)
	u.until("the stranger's control channel", func() bool {
		control := controlOf(l.Owner())
		return admin.PubSubNumSub(u.ctx, control).Val()[control] > 0
	})
	u.must("ForceUnlock", second(m.ForceUnlock(u.ctx)))
	u.until("the stranger's loss", func() bool { return l.Err() != nil })

	l = u.take(c.Mutex(lost))
	u.must("DEL", admin.Del(u.ctx, lost).Err())
	u.mustFail("Release", l.Release(u.ctx), lock.ErrLost)

	l = u.take(c.Mutex(forced, lock.WithLease(time.Minute)))
	u.until("the control channel", func() bool { return len(admin.PubSubChannels(u.ctx, "lockdog:control:"+u.name+":*").Val()) == 1 })
	u.must("ForceUnlock", second(other.Mutex(forced).ForceUnlock(u.ctx)))
	u.until("our loss", func() bool { return l.Err() != nil })
	u.free(u.take(c.Mutex(u.name+":kept", lock.WithMinHold(time.Hour))))
	u.manyAtOnce(c)
}

// prefixCalls take a lock, wait for it and take it away, all with a key prefix.
func prefixCalls(u *aclUser) {
	holder, other, name := u.client(lock.WithKeyPrefix("app:")), u.client(lock.WithKeyPrefix("app:")), u.name+":1"
	l := u.take(holder.Mutex(name))
	next := begin(u.ctx, other.Mutex(name))
	u.waits(other, 1, 1)
	u.free(l)
	l = u.got(next)
	u.must("ForceUnlock", second(holder.Mutex(name).ForceUnlock(u.ctx)))
	u.until("the loss", func() bool { return l.Err() != nil })
}

// manyAtOnce takes many locks at once, in batches.
func (u *aclUser) manyAtOnce(c *lock.Client) {
	all := make(chan error)
	for i := range 64 {
		go func() {
			l, err := c.Mutex(fmt.Sprint(u.name, ":many-", i)).TryLock(u.ctx)
			if err == nil {
				err = l.Release(u.ctx)
			}
			all <- err
		}()
	}
	var errs []error
	for range 64 {
		errs = append(errs, <-all)
	}
	u.must("many at once", errors.Join(errs...))
}

// refused returns an error for each of these commands that Redis refused. A script may succeed without them.
func (u *aclUser) refused(commands ...string) error {
	log, err := u.admin().ACLLog(u.ctx, 100).Result()
	errs := []error{err}
	for _, entry := range log {
		if entry.Username == u.name && slices.Contains(commands, entry.Object) {
			errs = append(errs, fmt.Errorf("%s was refused %d times", entry.Object, entry.Count))
		}
	}
	return errors.Join(errs...)
}

// handsOver releases a lock while a Lock of the same client waits for it, and repeats that until the waiter was granted
// the lock without asking again.
func (u *aclUser) handsOver(c *lock.Client, m lock.Locker, l *lock.Lease) *lock.Lease {
	for range 5 { // it may be about to ask just then
		heir := begin(u.ctx, m)
		u.asleep(c)
		asked := u.sent(u.t, telemetry.PurposeAcquire)
		u.free(l)
		l = u.got(heir)
		if u.sent(u.t, telemetry.PurposeAcquire) == asked {
			return l
		}
	}
	u.must("hand-over", errOther)
	return nil
}

// calledCalls releases a lock that two clients wait for: one of lockdog's, and one that the test made up. The release
// calls the latter by name, and no wait set is left.
func calledCalls(u *aclUser) {
	admin, name, fake := u.admin(), u.name+":a", "1000000001"
	set, channel := "lockdog_wait:{"+name+"}", "redisson_lock__channel:{"+name+"}"
	c, other := u.client(), u.client()
	all, own := u.listens(channel), u.listens(channel+":"+fake)
	defer func() { _, _ = all.Close(), own.Close() }()
	heard, named := all.Channel(), false
	hear := func() { // a message, and what else has come
		for again := true; again; again = len(heard) > 0 {
			select {
			case m := <-heard:
				named = named || m.Payload == fake
			case <-u.ctx.Done():
				u.must("a message", u.ctx.Err())
			}
		}
	}
	for range 5 { // now and then a release wakes all
		l := u.take(c.Mutex(name))
		next := begin(u.ctx, other.Mutex(name))
		u.asleep(other)
		u.mustBe("in the set", admin.ZCard(u.ctx, set).Val(), 1)
		u.must("ZADD", admin.ZAdd(u.ctx, set, redis.Z{Member: fake}).Err())
		u.free(l)
		hear()
		l = u.got(next)
		u.must("ZREM", admin.ZRem(u.ctx, set, fake).Err())
		u.mustBe("sets", admin.Exists(u.ctx, set).Val(), 0)
		u.free(l)
		hear()
	}
	if !named {
		u.must("a call by name", errOther)
	}
	calledBesideOwnWaiter(u, c, other)
}

// calledBesideOwnWaiter has a client release the lock while a waiter of its own is in the wait set.
func calledBesideOwnWaiter(u *aclUser, c, other *lock.Client) {
	admin, name := u.admin(), u.name+":a"
	set := "lockdog_wait:{" + name + "}"
	for round := range 5 { // now and then a release wakes all, and the next one calls whom this one should have called
		fake := fmt.Sprint(1_000_000_002 + round)
		own := u.listens("redisson_lock__channel:{" + name + "}:" + fake)
		defer func() { _ = own.Close() }()
		l := u.take(c.Mutex(name))
		theirs, ours := begin(u.ctx, other.Mutex(name)), begin(u.ctx, c.Mutex(name))
		u.asleep(other)
		u.asleep(c)
		u.must("ZADD", admin.ZAdd(u.ctx, set, redis.Z{Member: fake}).Err())
		u.free(l)
		called := false
		select {
		case <-own.Channel():
			called = true
		case <-time.After(u.lease / 2): // what is not called by then isn't
		}
		for range 2 {
			var got taken
			select {
			case got = <-theirs:
			case got = <-ours:
			}
			u.must("Lock", got.err)
			u.free(got.Lease)
		}
		u.must("DEL", admin.Del(u.ctx, set).Err())
		if called {
			return
		}
	}
	u.must("a call", errOther)
}

// graphCalls has two clients wait for each other. One wait fails with ErrDeadlock, and both clients are in the wait
// graph.
func graphCalls(u *aclUser) {
	a, b := u.name+":a", u.name+":b"
	graph, opts := lock.WithWaitGraph(100*time.Millisecond), []lock.LockOption{lock.WithDeadlockBreaking(), lock.WithWait(5 * u.lease)}
	one, two, admin := u.client(graph), u.client(graph), u.admin()
	first, other := u.take(one.Mutex(a)), u.take(two.Mutex(b))
	ones, twos := begin(first.Context(), one.Mutex(b, opts...)), begin(other.Context(), two.Mutex(a, opts...))
	victim, spared, theirs := taken{}, twos, first
	select {
	case victim = <-ones:
	case victim = <-twos:
		spared, theirs = ones, other
	}
	u.mustFail("the victim", victim.err, lock.ErrDeadlock)
	u.until("the victim's cleanup", func() bool { // the lock is still held when it leaves the wait set
		return admin.ZCard(u.ctx, "lockdog_wait:{"+a+"}").Val()+admin.ZCard(u.ctx, "lockdog_wait:{"+b+"}").Val() < 2
	})
	u.free(theirs)
	if got := <-spared; got.err == nil {
		u.free(got.Lease)
	}
	for _, l := range []*lock.Lease{first, other} {
		random := strings.Split(strings.TrimPrefix(l.Owner(), u.name+":"), "-")[0]
		u.must("ZSCORE", admin.ZScore(u.ctx, "lockdog:waiting", random).Err())
	}
}

// fairCalls has two Locks wait between two waiters of Redisson's. The deadlines of those pass meanwhile, so scripts
// remove them from the queue.
func fairCalls(u *aclUser) {
	c, admin, name := u.client(), u.admin(), u.name+":a"
	m, last := c.FairMutex(name), "java:2"
	enqueue := func(who string) { u.must("RPUSH", admin.RPush(u.ctx, "redisson_lock_queue:{"+name+"}", who).Err()) }
	until := func(who string, ms float64) {
		u.must("ZADD", admin.ZAdd(u.ctx, "redisson_lock_timeout:{"+name+"}", redis.Z{Score: ms, Member: who}).Err())
	}
	l := u.take(m)
	enqueue(somebodyElse)
	until(somebodyElse, 1e13)
	next := begin(u.ctx, m)
	u.waits(c, 1, 3)
	after := begin(u.ctx, m)
	u.waits(c, 2, 5)
	enqueue(last)
	until(last, 1e13)
	until(somebodyElse, 1)
	u.renewed(l)
	u.free(l)
	u.free(u.got(next))
	u.free(u.got(after))
	until(last, 1)
	u.take(m)
	u.must("ForceUnlock", second(m.ForceUnlock(u.ctx)))
	u.free(u.take(c.FairMutex(u.name+":kept", lock.WithMinHold(time.Hour))))
	u.must("Redis", u.refused("zrange", "persist"))
}

// rwCalls adds 70 readers of Redisson's, so many that the scripts look at some of them only.
func rwCalls(u *aclUser) {
	c, admin, name := u.client(), u.admin(), u.name+":a"
	m := c.RWMutex(name)
	l := u.take(m)
	r, err := m.RLock(l.Context())
	u.must("RLock", err)
	u.renewed(r)
	u.free(l)
	pipe := admin.Pipeline()
	for i := range 70 {
		reader := fmt.Sprint("java:", i)
		pipe.HSet(u.ctx, name, reader, 1)
		pipe.Set(u.ctx, "{"+name+"}:"+reader+":rwlock_timeout:1", 1, time.Hour)
	}
	u.must("70 readers", second(pipe.Exec(u.ctx)))
	next := begin(u.ctx, m)
	u.waits(c, 1, 4)
	u.until("the writer's place", func() bool { // what was sent may not have arrived
		return admin.ZCard(u.ctx, "{"+name+"}:lockdog_writers").Val() == 1 || u.refused("zadd") != nil
	})
	u.mustFail("TryRLock", second(m.TryRLock(u.ctx)), lock.ErrHeld) // the writer goes first
	u.free(r)
	u.must("EXPIRE", admin.Expire(u.ctx, name, time.Hour).Err()) // else the writer gets it when the reader's lease would have ended
	u.must("Inspect", second(m.Inspect(u.ctx)))
	u.must("ForceUnlock", second(m.ForceUnlock(u.ctx)))
	u.free(u.got(next))
}

// One permit was taken by somebody who is gone.
func semaphoreCalls(u *aclUser) {
	c, name := u.client(), u.name+":a"
	p := c.Semaphore(name)
	u.must("EnsurePermits", p.EnsurePermits(u.ctx, 3))
	u.must("EnsurePermits", p.EnsurePermits(u.ctx, 1))
	u.must("TrySetPermits", second(p.TrySetPermits(u.ctx, 1)))
	u.must("ZADD", u.admin().ZAdd(u.ctx, "{"+name+"}:timeout", redis.Z{Score: 1, Member: "of one gone ...."}).Err())
	one, two := u.take(p), u.take(p)
	next := begin(u.ctx, p)
	u.waits(c, 1, 4)
	u.renewed(one)
	u.free(one)
	u.free(u.got(next))
	u.free(two)
	u.must("AddPermits", p.AddPermits(u.ctx, 1))
	u.must("Total", second(p.Total(u.ctx)))
	n, err := p.Available(u.ctx)
	u.must("Available", err)
	u.mustBe("permits", int64(n), 3)
}

func unleasedCalls(u *aclUser) {
	c := u.client()
	s := c.UnleasedSemaphore(u.name + ":a")
	u.must("TrySetPermits", second(s.TrySetPermits(u.ctx, 1)))
	u.must("TryAcquire", s.TryAcquire(u.ctx, 1))
	next := acquiring(u.ctx, s, 1)
	u.waits(c, 1, 3)
	u.must("Release", s.Release(u.ctx, 1))
	u.must("Acquire", <-next)
	u.must("AddPermits", s.AddPermits(u.ctx, -1))
	u.must("Available", second(s.Available(u.ctx)))
}

func latchCalls(u *aclUser) {
	c := u.client()
	l := c.Latch(u.name + ":a")
	u.must("TrySetCount", second(l.TrySetCount(u.ctx, 1)))
	opened := awaiting(u.ctx, l)
	u.waits(c, 1, 2)
	u.must("CountDown", l.CountDown(u.ctx))
	u.must("Wait", <-opened)
	u.must("Count", second(l.Count(u.ctx)))
}

func multiCalls(u *aclUser) {
	c := u.client()
	m := c.Multi([]string{u.name + ":a", u.name + ":b"})
	l := u.take(m)
	next := begin(u.ctx, m)
	u.waits(c, 1, 3)
	u.free(l)
	u.free(u.got(next))
}

func quorumCalls(u *aclUser) {
	q, err := lock.NewQuorum(u.clientAt(0), u.clientAt(1), u.clientAt(2))
	u.must("NewQuorum", err)
	m := q.Mutex(u.name + ":a")
	l, err := answered(u.ctx, m)
	u.must("TryLock", err)
	u.renewed(l)
	next := begin(u.ctx, m)
	u.free(l)
	u.free(u.got(next))
}

func tokenCalls(u *aclUser) {
	u.must("Do", u.client().Mutex(u.name+":a", lock.WithRedissonTokens()).Do(u.ctx, noWork))
}

// There are no replicas, and Redis may say so.
func replicaCalls(u *aclUser) {
	_, err := u.client().Mutex(u.name+":a", lock.WithReplicas(1, 10*time.Millisecond)).TryLock(u.ctx)
	var few *lock.ReplicasError
	if !errors.As(err, &few) {
		u.must("TryLock", err)
	}
}

// lossCalls deletes a Mutex and a Semaphore's permits long before the next renewal. The user also gets the Semaphore's
// rules.
func lossCalls(u *aclUser) {
	admin, mutex, permit := u.admin(), u.name+":a", u.name+":b"
	c := u.client(lock.WithLossNotifications(), lock.WithLease(time.Minute))
	u.must("ACL SETUSER", admin.ACLSetUser(u.ctx, u.name, aclWords(u.name, rulesOf(u.t, "Semaphore"))...).Err())
	u.must("TrySetPermits", second(c.Semaphore(permit).TrySetPermits(u.ctx, 1)))
	l, p := u.take(c.Mutex(mutex)), u.take(c.Semaphore(permit))
	u.must("DEL", admin.Del(u.ctx, mutex, "{"+permit+"}:timeout").Err())
	u.until("the losses", func() bool { return l.Err() != nil && p.Err() != nil })
}

// clusterCalls has two clients share a Mutex. A wait for another Mutex keeps the subscriptions' connection open.
func clusterCalls(u *aclUser) {
	c, other, admin, name, another := u.client(), u.client(), u.admin(), u.name+":a", u.name+":b"
	listening := func(name string) bool {
		return len(admin.PubSubShardChannels(u.ctx, "redisson_lock__channel:{"+name+"}").Val()) > 0
	}
	waits := func(name string) <-chan taken {
		next := begin(u.ctx, c.Mutex(name))
		u.until("listening", func() bool { return listening(name) })
		return next
	}
	l, held := u.take(other.Mutex(name)), u.take(other.Mutex(another))
	u.renewed(l)
	next, last := waits(name), waits(another)
	u.free(l)
	u.free(u.got(next))
	u.until("unsubscribed", func() bool { return !listening(name) })
	u.free(held)
	u.free(u.got(last))
	l = u.handsOver(c, c.Mutex(name), u.take(c.Mutex(name)))
	u.must("ForceUnlock", second(other.Mutex(name).ForceUnlock(u.ctx)))
	u.until("loss", func() bool { return l.Err() != nil })
}

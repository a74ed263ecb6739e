package lock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// aclKinds do what a program does with locks of a kind; those other than a Mutex what it doesn't with that. They are called as the rows of
// package acl.
var aclKinds = map[string]func(u *aclUser) error{
	"Mutex":                 mutexCalls,
	"one of several":        calledCalls,
	"WithWaitGraph":         graphCalls,
	"FairMutex":             fairCalls,
	"RWMutex":               rwCalls,
	"Semaphore":             semaphoreCalls,
	"UnleasedSemaphore":     unleasedCalls,
	"Latch":                 latchCalls,
	"Multi":                 multiCalls,
	"Quorum":                quorumCalls,
	"WithRedissonTokens":    tokenCalls,
	"WithReplicas":          replicaCalls,
	"WithLossNotifications": lossCalls,
	aclCluster:              clusterCalls,
}

const aclCluster = "on a Cluster"

// mutexCalls are all that a program does with a Mutex, beside a client that may do everything.
func mutexCalls(u *aclUser) error {
	admin := u.admin()
	c, other := u.client(), newScope(u.t).open(u.t, admin)
	name, forced, lost := u.name+":1", u.name+":2", u.name+":3"
	m, control := c.Mutex(name), "lockdog:control:"+u.name+":*"
	channel := "redisson_lock__channel:{" + name + "}"
	listening := func() bool { return admin.PubSubNumSub(u.ctx, channel).Val()[channel] > 0 }
	var l *lock.Lease
	var stranger <-chan taken
	return inTurn(
		func() (err error) { l, err = m.TryLock(u.ctx); return err },
		func() error { return u.renewed(l) },
		func() error { return expected(second(m.TryLock(u.ctx)), lock.ErrHeld) },
		func() error { return second(m.Inspect(u.ctx)) },
		func() (err error) { l, err = u.handsOver(c, m, l); return err },
		func() error { return u.until("unsubscribed", func() bool { return !listening() }) },
		func() error { stranger = begin(u.ctx, other.Mutex(name)); return u.until("the stranger", listening) },
		func() error { return l.Release(u.ctx) },
		func() error { got := <-stranger; l = got.Lease; return got.err },
		func() error {
			control := "lockdog:control:" + l.Owner()[:strings.LastIndex(l.Owner(), "-")]
			return u.until("the stranger's control channel", func() bool { return admin.PubSubNumSub(u.ctx, control).Val()[control] > 0 })
		},
		func() error { return second(m.ForceUnlock(u.ctx)) },
		func() error { return u.until("the stranger's loss", func() bool { return l.Err() != nil }) },

		func() (err error) { l, err = c.Mutex(lost).TryLock(u.ctx); return err },
		func() error { return admin.Del(u.ctx, lost).Err() },
		func() error { return expected(l.Release(u.ctx), lock.ErrLost) },

		func() (err error) {
			l, err = c.Mutex(forced, lock.WithLease(time.Minute)).TryLock(u.ctx)
			return err
		},
		func() error {
			return u.until("the control channel", func() bool { return len(admin.PubSubChannels(u.ctx, control).Val()) == 1 })
		},
		func() error { return second(other.Mutex(forced).ForceUnlock(u.ctx)) },
		func() error { return u.until("our loss", func() bool { return l.Err() != nil }) },
		func() error { return u.manyAtOnce(c) },
	)
}

// prefixCalls take a lock, wait for it and take it away, all with a key prefix.
func prefixCalls(u *aclUser) error {
	holder, other, name := u.client(lock.WithKeyPrefix("app:")), u.client(lock.WithKeyPrefix("app:")), u.name+":1"
	var l *lock.Lease
	var next <-chan taken
	return inTurn(
		func() (err error) { l, err = holder.Mutex(name).Lock(u.ctx); return err },
		func() error { next = begin(u.ctx, other.Mutex(name)); return u.waits(other, 1, 1) },
		func() error { return l.Release(u.ctx) },
		func() error { got := <-next; l = got.Lease; return got.err },
		func() error { return second(holder.Mutex(name).ForceUnlock(u.ctx)) },
		func() error { return u.until("the loss", func() bool { return l.Err() != nil }) },
	)
}

// manyAtOnce takes many locks at once, in batches.
func (u *aclUser) manyAtOnce(c *lock.Client) error {
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
	return errors.Join(errs...)
}

// refused is nil unless Redis refused commands whose want a script survives.
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

// handsOver gives a lock back for which a call of the same client waits, until that has it without asking for it.
func (u *aclUser) handsOver(c *lock.Client, m lock.Locker, l *lock.Lease) (*lock.Lease, error) {
	for range 5 { // it may be about to ask just then
		heir := begin(u.ctx, m)
		if err := u.until("asleep", func() bool { return lock.Asleep(c, 1) }); err != nil {
			return nil, err
		}
		asked := u.sent(u.t, telemetry.PurposeAcquire)
		if err := l.Release(u.ctx); err != nil {
			return nil, err
		}
		got := <-heir
		if got.err != nil || u.sent(u.t, telemetry.PurposeAcquire) == asked {
			return got.Lease, got.err
		}
		l = got.Lease
	}
	return nil, errOther
}

// A client that waits is called, another that listens, too, and nobody is left.
func calledCalls(u *aclUser) error {
	admin, name := u.admin(), u.name+":a"
	set, channel, fake := "lockdog_wait:{"+name+"}", "redisson_lock__channel:{"+name+"}", "1000000001"
	c, other := u.client(), u.client()
	all, own := admin.Subscribe(u.ctx, channel), admin.Subscribe(u.ctx, channel+":"+fake)
	defer func() { _, _ = all.Close(), own.Close() }()
	for _, sub := range []*redis.PubSub{all, own} {
		if _, err := sub.Receive(u.ctx); err != nil {
			return err
		}
	}
	heard, named := all.Channel(), false
	hear := func() error { // a message, and what else has come
		for {
			select {
			case m := <-heard:
				named = named || m.Payload == fake
			case <-u.ctx.Done():
				return u.ctx.Err()
			}
			if len(heard) == 0 {
				return nil
			}
		}
	}
	for range 5 { // now and then a release wakes all
		var l *lock.Lease
		var next <-chan taken
		err := inTurn(
			func() (err error) { l, err = c.Mutex(name).TryLock(u.ctx); return err },
			func() error { next = begin(u.ctx, other.Mutex(name)); return nil },
			func() error { return u.until("asleep", func() bool { return lock.Asleep(other, 1) }) },
			func() error {
				if admin.ZCard(u.ctx, set).Val() != 1 {
					return errOther
				}
				return nil
			},
			func() error { return admin.ZAdd(u.ctx, set, redis.Z{Member: fake}).Err() },
			func() error { return l.Release(u.ctx) },
			hear,
			func() error { got := <-next; l = got.Lease; return got.err },
			func() error { return admin.ZRem(u.ctx, set, fake).Err() },
			func() error {
				if admin.Exists(u.ctx, set).Val() > 0 {
					return errOther
				}
				return nil
			},
			func() error { return l.Release(u.ctx) },
			hear,
		)
		if err != nil {
			return err
		}
	}
	if !named {
		return errOther
	}
	return calledBesideOwnWaiter(u, c, other)
}

// calledBesideOwnWaiter has a client release the lock while a waiter of its own is in the wait set.
func calledBesideOwnWaiter(u *aclUser, c, other *lock.Client) error {
	admin, name := u.admin(), u.name+":a"
	set := "lockdog_wait:{" + name + "}"
	for round := range 5 { // now and then a release wakes all, and the next one calls whom this one should have called
		fake := fmt.Sprint(1_000_000_002 + round)
		own := admin.Subscribe(u.ctx, "redisson_lock__channel:{"+name+"}:"+fake)
		defer func() { _ = own.Close() }()
		if _, err := own.Receive(u.ctx); err != nil {
			return err
		}
		var l *lock.Lease
		var theirs, ours <-chan taken
		called := false
		err := inTurn(
			func() (err error) { l, err = c.Mutex(name).TryLock(u.ctx); return err },
			func() error { theirs = begin(u.ctx, other.Mutex(name)); return nil },
			func() error { ours = begin(u.ctx, c.Mutex(name)); return nil },
			func() error {
				return u.until("asleep", func() bool { return lock.Asleep(other, 1) && lock.Asleep(c, 1) })
			},
			func() error { return admin.ZAdd(u.ctx, set, redis.Z{Member: fake}).Err() },
			func() error { return l.Release(u.ctx) },
			func() error {
				select {
				case <-own.Channel():
					called = true
				case <-time.After(u.lease / 2): // what is not called by then isn't
				}
				return nil
			},
			func() error {
				for range 2 {
					var got taken
					select {
					case got = <-theirs:
					case got = <-ours:
					}
					if got.err != nil {
						return got.err
					}
					if err := got.Release(u.ctx); err != nil {
						return err
					}
				}
				return admin.Del(u.ctx, set).Err()
			},
		)
		if err != nil || called {
			return err
		}
	}
	return errOther
}

// Two wait for each other, and one of them is told so. Who reads the graph finds both.
func graphCalls(u *aclUser) error {
	a, b := u.name+":a", u.name+":b"
	graph, opts := lock.WithWaitGraph(100*time.Millisecond), []lock.LockOption{lock.WithDeadlockBreaking(), lock.WithWait(5 * u.lease)}
	one, two, admin := u.client(graph), u.client(graph), u.admin()
	var first, second *lock.Lease
	return inTurn(
		func() (err error) { first, err = one.Mutex(a).TryLock(u.ctx); return err },
		func() (err error) { second, err = two.Mutex(b).TryLock(u.ctx); return err },
		func() error {
			ones, twos := begin(first.Context(), one.Mutex(b, opts...)), begin(second.Context(), two.Mutex(a, opts...))
			victim, spared, theirs := taken{}, twos, first
			select {
			case victim = <-ones:
			case victim = <-twos:
				spared, theirs = ones, second
			}
			err := expected(victim.err, lock.ErrDeadlock)
			// The lock is still held when the victim leaves the wait set.
			err = cmp.Or(err, u.until("the victim's cleanup", func() bool {
				return admin.ZCard(u.ctx, "lockdog_wait:{"+a+"}").Val()+admin.ZCard(u.ctx, "lockdog_wait:{"+b+"}").Val() < 2
			}))
			if rerr := theirs.Release(context.WithoutCancel(u.ctx)); err == nil {
				err = rerr
			}
			got := <-spared
			if got.err == nil {
				err = errors.Join(err, got.Release(u.ctx))
			}
			return err
		},
		func() error {
			for _, l := range []*lock.Lease{first, second} {
				random := strings.Split(strings.TrimPrefix(l.Owner(), u.name+":"), "-")[0]
				if err := admin.ZScore(u.ctx, "lockdog:waiting", random).Err(); err != nil {
					return err
				}
			}
			return nil
		},
	)
}

// Before it waits one of Redisson's, who is gone, and behind it another, who is gone by the end.
func fairCalls(u *aclUser) error {
	c, admin, name := u.client(), u.admin(), u.name+":a"
	m, last := c.FairMutex(name), "java:2"
	queue, deadlines := "redisson_lock_queue:{"+name+"}", "redisson_lock_timeout:{"+name+"}"
	var l *lock.Lease
	var next, after <-chan taken
	return inTurn(
		func() (err error) { l, err = m.TryLock(u.ctx); return err },
		func() error { return admin.RPush(u.ctx, queue, somebodyElse).Err() },
		func() error {
			return admin.ZAdd(u.ctx, deadlines, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: somebodyElse}).Err()
		},
		func() error { next = begin(u.ctx, m); return u.waits(c, 1, 3) },
		func() error { after = begin(u.ctx, m); return u.waits(c, 2, 5) },
		func() error { return admin.RPush(u.ctx, queue, last).Err() },
		func() error { return admin.ZAdd(u.ctx, deadlines, redis.Z{Score: 1e13, Member: last}).Err() },
		func() error { return admin.ZAdd(u.ctx, deadlines, redis.Z{Score: 1, Member: somebodyElse}).Err() },
		func() error { return u.renewed(l) },
		func() error { return l.Release(u.ctx) },
		func() error { return u.had(next) },
		func() error { return u.had(after) },
		func() error { return admin.ZAdd(u.ctx, deadlines, redis.Z{Score: 1, Member: last}).Err() },
		func() (err error) { l, err = m.TryLock(u.ctx); return err },
		func() error { _, err := m.ForceUnlock(u.ctx); return err },
		func() error { return u.refused("zrange", "persist") },
	)
}

// There are so many readers that Redis looks at some only; those are Redisson's.
func rwCalls(u *aclUser) error {
	c, admin, name := u.client(), u.admin(), u.name+":a"
	m := c.RWMutex(name)
	var l, r *lock.Lease
	var next <-chan taken
	return inTurn(
		func() (err error) { l, err = m.TryLock(u.ctx); return err },
		func() (err error) { r, err = m.RLock(l.Context()); return err },
		func() error { return u.renewed(r) },
		func() error { return l.Release(u.ctx) },
		func() error {
			pipe := admin.Pipeline()
			for i := range 70 {
				reader := fmt.Sprint("java:", i)
				pipe.HSet(u.ctx, name, reader, 1)
				pipe.Set(u.ctx, "{"+name+"}:"+reader+":rwlock_timeout:1", 1, time.Hour)
			}
			_, err := pipe.Exec(u.ctx)
			return err
		},
		func() error { next = begin(u.ctx, m); return u.waits(c, 1, 4) },
		func() error { // what was sent may not have arrived
			return u.until("the writer's place", func() bool {
				return admin.ZCard(u.ctx, "{"+name+"}:lockdog_writers").Val() == 1 || u.refused("zadd") != nil
			})
		},
		func() error { return expected(second(m.TryRLock(u.ctx)), lock.ErrHeld) }, // the writer goes first
		func() error { return r.Release(u.ctx) },
		func() error { return admin.Expire(u.ctx, name, time.Hour).Err() }, // else the writer gets it when the reader's lease would have ended
		func() error { _, err := m.Inspect(u.ctx); return err },
		func() error { _, err := m.ForceUnlock(u.ctx); return err },
		func() error { return u.had(next) },
	)
}

// One permit was taken by somebody who is gone.
func semaphoreCalls(u *aclUser) error {
	c, name := u.client(), u.name+":a"
	p := c.Semaphore(name)
	var one, two *lock.Lease
	var next <-chan taken
	return inTurn(
		func() error { return p.EnsurePermits(u.ctx, 3) },
		func() error { return p.EnsurePermits(u.ctx, 1) },
		func() error { _, err := p.TrySetPermits(u.ctx, 1); return err },
		func() error {
			return u.admin().ZAdd(u.ctx, "{"+name+"}:timeout", redis.Z{Score: 1, Member: "of one gone ...."}).Err()
		},
		func() (err error) { one, err = p.TryLock(u.ctx); return err },
		func() (err error) { two, err = p.TryLock(u.ctx); return err },
		func() error { next = begin(u.ctx, p); return u.waits(c, 1, 4) },
		func() error { return u.renewed(one) },
		func() error { return one.Release(u.ctx) },
		func() error { return u.had(next) },
		func() error { return two.Release(u.ctx) },
		func() error { return p.AddPermits(u.ctx, 1) },
		func() error { _, err := p.Total(u.ctx); return err },
		func() error {
			if n, err := p.Available(u.ctx); n != 3 || err != nil {
				return fmt.Errorf("%d permits, %w", n, err)
			}
			return nil
		},
	)
}

func unleasedCalls(u *aclUser) error {
	c := u.client()
	s := c.UnleasedSemaphore(u.name + ":a")
	var next <-chan error
	return inTurn(
		func() error { _, err := s.TrySetPermits(u.ctx, 1); return err },
		func() error { return s.TryAcquire(u.ctx, 1) },
		func() error { next = acquiring(u.ctx, s, 1); return u.waits(c, 1, 3) },
		func() error { return s.Release(u.ctx, 1) },
		func() error { return <-next },
		func() error { return s.AddPermits(u.ctx, -1) },
		func() error { _, err := s.Available(u.ctx); return err },
	)
}

func latchCalls(u *aclUser) error {
	c := u.client()
	l := c.Latch(u.name + ":a")
	var opened <-chan error
	return inTurn(
		func() error { _, err := l.TrySetCount(u.ctx, 1); return err },
		func() error { opened = awaiting(u.ctx, l); return u.waits(c, 1, 2) },
		func() error { return l.CountDown(u.ctx) },
		func() error { return <-opened },
		func() error { _, err := l.Count(u.ctx); return err },
	)
}

func multiCalls(u *aclUser) error {
	c := u.client()
	m := c.Multi([]string{u.name + ":a", u.name + ":b"})
	var l *lock.Lease
	var next <-chan taken
	return inTurn(
		func() (err error) { l, err = m.TryLock(u.ctx); return err },
		func() error { next = begin(u.ctx, m); return u.waits(c, 1, 3) },
		func() error { return l.Release(u.ctx) },
		func() error { return u.had(next) },
	)
}

func quorumCalls(u *aclUser) error {
	q, err := lock.NewQuorum(u.clientAt(0), u.clientAt(1), u.clientAt(2))
	if err != nil {
		return err
	}
	m := q.Mutex(u.name + ":a")
	var l *lock.Lease
	var next <-chan taken
	return inTurn(
		func() (err error) { l, err = answered(u.ctx, m); return err },
		func() error { return u.renewed(l) },
		func() error { next = begin(u.ctx, m); return nil },
		func() error { return l.Release(u.ctx) },
		func() error { return u.had(next) },
	)
}

func tokenCalls(u *aclUser) error {
	return u.client().Mutex(u.name+":a", lock.WithRedissonTokens()).Do(u.ctx, func(context.Context, *lock.Lease) error { return nil })
}

// There are no replicas, and Redis may say so.
func replicaCalls(u *aclUser) error {
	_, err := u.client().Mutex(u.name+":a", lock.WithReplicas(1, 10*time.Millisecond)).TryLock(u.ctx)
	var few *lock.ReplicasError
	if errors.As(err, &few) {
		return nil
	}
	return err
}

// A Mutex, and permits with the rules that these need, deleted long before the next renewal.
func lossCalls(u *aclUser) error {
	admin, mutex, permit := u.admin(), u.name+":a", u.name+":b"
	c := u.client(lock.WithLossNotifications(), lock.WithLease(time.Minute))
	var l, p *lock.Lease
	return inTurn(
		func() error {
			return admin.ACLSetUser(u.ctx, u.name, aclWords(u.name, rulesOf(u.t, "Semaphore"))...).Err()
		},
		func() error { _, err := c.Semaphore(permit).TrySetPermits(u.ctx, 1); return err },
		func() (err error) { l, err = c.Mutex(mutex).TryLock(u.ctx); return err },
		func() (err error) { p, err = c.Semaphore(permit).TryLock(u.ctx); return err },
		func() error { return admin.Del(u.ctx, mutex, "{"+permit+"}:timeout").Err() },
		func() error { return u.until("the losses", func() bool { return l.Err() != nil && p.Err() != nil }) },
	)
}

// A Mutex, by two clients. Another one keeps the subscription up.
func clusterCalls(u *aclUser) error {
	c, other, admin, name, another := u.client(), u.client(), u.admin(), u.name+":a", u.name+":b"
	listening := func(name string) func() bool {
		channel := "redisson_lock__channel:{" + name + "}"
		return func() bool { return len(admin.PubSubShardChannels(u.ctx, channel).Val()) > 0 }
	}
	var l, held *lock.Lease
	var next, last <-chan taken
	return inTurn(
		func() (err error) { l, err = other.Mutex(name).TryLock(u.ctx); return err },
		func() (err error) { held, err = other.Mutex(another).TryLock(u.ctx); return err },
		func() error { return u.renewed(l) },
		func() error { next = begin(u.ctx, c.Mutex(name)); return u.until("listening", listening(name)) },
		func() error { last = begin(u.ctx, c.Mutex(another)); return u.until("listening", listening(another)) },
		func() error { return l.Release(u.ctx) },
		func() error { return u.had(next) },
		func() error { return u.until("unsubscribed", func() bool { return !listening(name)() }) },
		func() error { return held.Release(u.ctx) },
		func() error { return u.had(last) },
		func() (err error) { l, err = c.Mutex(name).TryLock(u.ctx); return err },
		func() (err error) { l, err = u.handsOver(c, c.Mutex(name), l); return err },
		func() error { _, err := other.Mutex(name).ForceUnlock(u.ctx); return err },
		func() error { return u.until("loss", func() bool { return l.Err() != nil }) },
	)
}

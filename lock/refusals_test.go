package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What callers see when Redis refuses: a clear error, or nothing, as it passed inside the lease. Never a hang, never a wrong
// grant, and never a lock that nobody holds for longer than a lease.

// forbidden lists what a user may not do, from the beginning or from a later time, and what its callers must see then.
// The rows share a server. Each row has its own user and its own lock.
var forbidden = []struct {
	what string
	sees string
	but  []string // rules of the user, after those that it needs
	run  func(t *testing.T, r *refusal)
}{
	{"the scripts", "acquire: NOPERM, type acl, one try", []string{"-evalsha"}, refusedAcquire("NOPERM")},
	{"the lock's key", "acquire: type acl, one try", []string{"resetkeys", "~lockdog:fence:*"}, refusedAcquire("job")},
	{"the token's key", "acquire: type acl, one try", []string{"resetkeys", "~job*"}, refusedAcquire("job")},
	{"TIME", "acquire: type acl, one try", []string{"-time"}, refusedAcquire("job")},
	{"HSET", "acquire: type acl, one try", []string{"-hset"}, refusedAcquire("job")},
	{"PEXPIRE", "acquire: type acl; no entry is left that never expires", []string{"-pexpire"}, refusedAcquire("job")},
	{"to log in", "acquire: WRONGPASS, type acl", []string{"resetpass", ">other"}, refusedAcquire("WRONGPASS")},
	{"SUBSCRIBE", "waiters get in by asking twice a second", []string{"-subscribe"}, deafWaiter},
	{"the channel of releases", "waiters get in by asking twice a second", []string{"resetchannels", "&lockdog:control:*"}, deafWaiter},
	{"the control channel", "a forced unlock is noticed at the next renewal", []string{"resetchannels", "&redisson_lock__channel:*"}, deafHolder},
	{"PUBSUB", "release: done, and waiters are woken; an error of type acl is counted", []string{"-pubsub"}, uncountedRelease},
	{"the channels of numbers", "Semaphore, UnleasedSemaphore, Latch: nothing was done", []string{"allkeys", "allchannels", "+@all"}, muteNumbers},
	{"PEXPIRE before a hand-over", "hand-over: type acl, the heir is refused too; no entry is left that never expires", nil, refusedHandOver},
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for i, row := range forbidden {
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			r := &refusal{scope: newScope(t), srv: srv, rdb: srv.Client(t), user: fmt.Sprint("app", i), job: fmt.Sprint("job", i)}
			r.forbid(t, append(append([]string{"on", ">" + appPassword}, strings.Fields(appACL)...), row.but...)...)
			row.run(t, r)
			if t.Failed() {
				t.Logf("the caller must see: %s", row.sees)
			}
		})
	}
}

// refusal is a server that refuses something to a user.
type refusal struct {
	*scope
	srv       *redistest.Server
	rdb       *redis.Client // may do everything
	user, job string
}

// restricted gives a client of that user.
func (r *refusal) restricted(t *testing.T, opts ...lock.Option) *lock.Client {
	t.Helper()
	return r.open(t, r.srv.Client(t, func(o *redis.Options) { o.Username, o.Password = r.user, appPassword }), opts...)
}

const appPassword = "secret"

// refused counts the refusals of a kind that the clients of the scope have met.
func (s *scope) refused(t *testing.T, operation, kind string) int {
	t.Helper()
	return int(s.sum(t, telemetry.MetricErrors, "lockdog.operation="+operation, "error.type="+kind))
}

func (r *refusal) exists(t *testing.T, key string) bool {
	t.Helper()
	n, err := r.rdb.Exists(context.Background(), key).Result()
	must(t, "EXISTS", err)
	return n == 1
}

// refusedByACL reports whether Redis refused a command to a user, in the words of any version.
func refusedByACL(err error) bool {
	return strings.Contains(err.Error(), "can't run this command") || strings.Contains(err.Error(), "ACL failure in script")
}

// mustMention fails the test unless the error has the text, and the lock's name.
func mustMention(t *testing.T, err error, name, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), name) {
		t.Errorf("the error is %v; it should have %q and %q", err, name, text)
	}
}

// refusedAcquire: the lock is refused, in one try, and nothing of it is left.
func refusedAcquire(text string) func(*testing.T, *refusal) {
	return func(t *testing.T, r *refusal) {
		c := r.restricted(t)
		_, err := c.Mutex(r.job).TryLock(t.Context())
		mustMention(t, err, r.job, text)
		mustBe(t, "unavailable", errors.Is(err, lock.ErrUnavailable), text == "WRONGPASS")
		if n := r.refused(t, "acquire", "acl"); n != 1 {
			t.Errorf("errors %v, want one of type acl", r.series(t, telemetry.MetricErrors))
		}
		if got := attrsOf(r.spansNamed("acquire default")[0]); got["error.type"] != "acl" || got["lockdog.outcome"] != "error" {
			t.Errorf("the acquire span says %v, want error.type acl", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err = c.Mutex(r.job).Lock(ctx) // who would wait is told, too
		mustMention(t, err, r.job, text)
		free(t, try(t, newScope(t).open(t, r.rdb).Mutex(r.job)))
	}
}

// deafWaiter: the subscription is refused.
func deafWaiter(t *testing.T, r *refusal) {
	l := try(t, newScope(t).open(t, r.rdb).Mutex(r.job)) // for DefaultLease
	c := r.restricted(t)
	waiter := begin(t.Context(), c.Mutex(r.job))
	eventually(t, patience, func() bool { return r.refused(t, "subscribe", "acl") > 0 })
	eventually(t, patience, func() bool { return r.sum(t, telemetry.MetricWakeups, "lockdog.wakeup.source=poll") >= 5 })
	free(t, l)
	l = granted(t, waiter)
	free(t, l) // though it may be forbidden to publish it
	eventually(t, patience, func() bool { return !r.exists(t, r.job) })
}

// deafHolder: the control channel is refused, all else works.
func deafHolder(t *testing.T, r *refusal) {
	c, other := r.restricted(t, lock.WithLease(8*time.Second)), newScope(t).open(t, r.rdb)
	l := try(t, c.Mutex(r.job))
	eventually(t, patience, func() bool { return r.refused(t, "subscribe", "acl") > 0 })
	waiter := begin(t.Context(), other.Mutex(r.job))
	waiting(t, other, 1)
	if was, err := other.Mutex(r.job).ForceUnlock(t.Context()); err != nil || !was {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	free(t, granted(t, waiter))
	await(t, "Done", l.Ended())
	mustMatch(t, l.Err(), lock.ErrLost)
	_, err := c.Mutex(r.job).ForceUnlock(t.Context()) // of a free lock: there is nobody to tell
	if err != nil {
		t.Errorf("ForceUnlock: %v", err)
	}
}

// uncountedRelease checks that a release wakes all waiters if the ACL forbids to count the subscribers of its channel.
func uncountedRelease(t *testing.T, r *refusal) {
	c, other := r.restricted(t, lock.WithLease(far)), newScope(t).open(t, r.rdb, lock.WithLease(far))
	r.forbid(t, "~lockdog_wait:*", "+zadd", "+zcard", "+zrange", "+zrem", "+zscore")
	l := try(t, c.Mutex(r.job))
	waiter := begin(t.Context(), other.Mutex(r.job))
	asleep(t, other, 1)
	free(t, l)
	free(t, granted(t, waiter))               // long before its timer
	counted := r.refused(t, "release", "acl") // one release of many doesn't count them

	l = try(t, c.Mutex(r.job))
	heir := begin(t.Context(), c.Mutex(r.job))
	asleep(t, c, 1)
	free(t, l)
	free(t, granted(t, heir))
	if counted > 1 {
		t.Errorf("errors %v, want one for each release", r.series(t, telemetry.MetricErrors))
	}
}

// muteNumbers checks that a change of a number fails if the ACL forbids to publish it.
func muteNumbers(t *testing.T, r *refusal) {
	ctx, c := t.Context(), r.restricted(t)
	s, p, gate := c.UnleasedSemaphore(r.job+":s"), c.Semaphore(r.job+":p"), c.Latch(r.job+":l")
	_, err := s.TrySetPermits(ctx, 5)
	must(t, "TrySetPermits", err)
	must(t, "Acquire", s.Acquire(ctx, 2))
	_, err = p.TrySetPermits(ctx, 1)
	must(t, "TrySetPermits", err)
	_, err = gate.TrySetCount(ctx, 1)
	must(t, "TrySetCount", err)
	number := func(key string) string { return r.rdb.Get(ctx, key).Val() }
	before := [...]string{number(r.job + ":s"), number(r.job + ":p"), number(r.job + ":l")}

	r.forbid(t, "resetchannels")
	set := func(_ bool, err error) error { return err }
	for _, call := range []struct {
		what string
		run  func() error
	}{
		{"UnleasedSemaphore.Release", func() error { return s.Release(ctx, 2) }},
		{"UnleasedSemaphore.AddPermits", func() error { return s.AddPermits(ctx, 1) }},
		{"UnleasedSemaphore.TrySetPermits", func() error { return set(c.UnleasedSemaphore(r.job+":none").TrySetPermits(ctx, 1)) }},
		{"Semaphore.AddPermits", func() error { return p.AddPermits(ctx, 1) }},
		{"Semaphore.EnsurePermits", func() error { return p.EnsurePermits(ctx, 5) }},
		{"Semaphore.EnsurePermits of one that was never set", func() error { return c.Semaphore(r.job+":unset").EnsurePermits(ctx, 5) }},
		{"Latch.CountDown", func() error { return gate.CountDown(ctx) }},
		{"Latch.TrySetCount", func() error { return set(c.Latch(r.job+":open").TrySetCount(ctx, 1)) }},
	} {
		for range 2 {
			if err := call.run(); err == nil || !refusedByACL(err) && !strings.Contains(err.Error(), "publish") {
				t.Errorf("%s: %v", call.what, err)
			}
		}
	}
	if after := [...]string{number(r.job + ":s"), number(r.job + ":p"), number(r.job + ":l")}; after != before {
		t.Errorf("the numbers are %v, want %v", after, before)
	}
	for _, key := range []string{r.job + ":none", r.job + ":unset", r.job + ":open"} {
		if r.exists(t, key) {
			t.Errorf("%s is set", key)
		}
	}

	r.forbid(t, "allchannels")
	must(t, "Release", s.Release(ctx, 2))
	must(t, "CountDown", gate.CountDown(ctx))
	mustBe(t, "left", number(r.job+":s"), "5")
	mustBe(t, "open", r.exists(t, r.job+":l"), false)
}

// refusedHandOver: the heir can't be given its lease.
func refusedHandOver(t *testing.T, r *refusal) {
	c := r.restricted(t)
	l := try(t, c.Mutex(r.job))
	heir := begin(t.Context(), c.Mutex(r.job))
	listenedTo(t, r.rdb, r.job)
	r.forbid(t, "-pexpire")
	if err := l.Release(t.Context()); err != nil {
		mustBe(t, "refused", refusedByACL(err), true)
	}
	if err := await(t, "the heir", heir).err; err == nil || !refusedByACL(err) {
		t.Errorf("the heir: %v", err)
	}
	eventually(t, patience, func() bool { return !r.exists(t, r.job) })
}

// forbid changes what the user may do, also on connections that exist.
func (r *refusal) forbid(t *testing.T, rules ...string) {
	t.Helper()
	must(t, "ACL SETUSER", r.rdb.ACLSetUser(context.Background(), r.user, rules...).Err())
}

// A release that may not be told is done, and an error is counted; waiters go by their timers. (Here and below leases run out, which wants fake time.)
func TestForbiddenPublish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, s := redistest.StartFake(t), newScope(t)
		c, other := s.open(t, srv.Client(t)), newScope(t).open(t, srv.Client(t))
		l := try(t, c.Mutex("job"))
		waiter := begin(t.Context(), other.Mutex("job"))
		asleep(t, other, 1)
		srv.SetRefusal(refuseAny([]string{"PUBLISH"}, "NOPERM this user has no permissions to run the 'publish' command"))
		free(t, l)
		if n := s.refused(t, "release", "acl"); n != 1 {
			t.Errorf("errors %v, want one of a release", s.series(t, telemetry.MetricErrors))
		}
		got := <-waiter
		must(t, "Lock", got.err)
		srv.SetRefusal(nil)
		free(t, got.Lease)
	})
}

// A lease whose renewals are forbidden is lost as unreachable, with the reason.
func TestForbiddenRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		l := try(t, newScope(t).open(t, srv.Client(t)).Mutex("job", lock.WithLease(steady)))
		srv.SetRefusal(refuseAny([]string{"EVALSHA", "EVAL"}, "NOPERM this user has no permissions to run the 'evalsha' command"))
		mustBeLost(t, l, lock.CauseUnreachable)
		mustMention(t, l.Err(), "job", "NOPERM")
	})
}

// listenedTo waits until a lock's releases are listened to.
func listenedTo(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	eventually(t, patience, func() bool {
		return rdb.PubSubNumSub(context.Background(), channel).Val()[channel] > 0
	})
}

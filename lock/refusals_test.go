package lock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What callers see when Redis refuses: a clear error, or nothing, as it passed inside the lease. Never a hang, never a wrong
// grant, and never a lock that nobody holds for longer than a lease.
var refusals = []struct {
	name  string
	sees  string // what the caller must see
	setup []redistest.Option
	run   func(t *testing.T, r *refusal)
}{
	{"ACL forbids the scripts", "acquire: NOPERM, type acl, one try", app("-evalsha"), refusedAcquire("acl", "NOPERM", 1)},
	{"ACL forbids the lock's key", "acquire: type acl, one try", app("resetkeys", "~lockdog:fence:*"), refusedAcquire("acl", "job", 1)},
	{"ACL forbids the token's key", "acquire: type acl, one try", app("resetkeys", "~job*"), refusedAcquire("acl", "job", 1)},
	{"ACL forbids TIME", "acquire: type acl, one try", app("-time"), refusedAcquire("acl", "job", 1)},
	{"ACL forbids HSET", "acquire: type acl, one try", app("-hset"), refusedAcquire("acl", "job", 1)},
	{"ACL forbids PEXPIRE", "acquire: type acl; no entry is left that never expires", app("-pexpire"), refusedAcquire("acl", "job", 1)},
	{"ACL forbids SUBSCRIBE", "waiters get in by asking twice a second", app("-subscribe"), deafWaiter},
	{"ACL forbids the channel of releases", "waiters get in by asking twice a second", app("resetchannels", "&lockdog:control:*"), deafWaiter},
	{"ACL forbids the control channel", "a forced unlock is noticed at the next renewal", app("resetchannels", "&redisson_lock__channel:*"), deafHolder},
	{"ACL forbids PUBLISH", "release: done, and an error of type acl counted; waiters go by their timers", app("-publish"), muteRelease},
	{"ACL forbids PUBSUB", "release: done, and waiters are woken; an error of type acl is counted", app("-pubsub"), uncountedRelease},
	{"ACL forbids the channels of numbers", "Semaphore, UnleasedSemaphore, Latch: type acl, and nothing was done", app("allkeys", "allchannels", "+@all"), muteNumbers},
	{"ACL forbids PEXPIRE later", "hand-over: type acl, the heir is refused too; no entry is left that never expires", app(), refusedHandOver},
	{"ACL forbids the scripts later", "the lease is lost as unreachable, with the reason", app(), refusedRenewal},
	{"wrong password", "acquire: WRONGPASS, type acl", app("resetpass", ">other"), refusedAcquire("acl", "WRONGPASS", 1)},
	{"a replica", "acquire: READONLY, type readonly; of a held lock: ErrHeld", nil, replica},
	{"a primary that is demoted for a while", "renewals: READONLY, lease kept; acquire: type readonly", nil, demoted},
	{"a primary that loads its data", "renewals: LOADING, lease kept; acquire: type loading", loads, loading},
	{"a primary without its replicas", "renewals: NOREPLICAS, lease kept; acquire: type readonly", nil, outlasts(spells[0])},
	{"a primary that can't save", "renewals: MISCONF, lease kept; acquire: type readonly", nil, outlasts(spells[1])},
	{"a Redis that is full", "hand-over works; another process's waiter: OOM", nil, full},
	{"SCRIPT FLUSH before a hand-over", "nothing", nil, flushed},
	{"a script that keeps Redis busy", "renewals: BUSY, lease kept; acquire: type busy; a waiter waits on", []redistest.Option{redistest.WithConfig("busy-reply-threshold", "10")}, busy},
	{"a key of another type", "acquire, release, inspect, forced unlock, hand-over: ErrInvalid; renewal: lost as unreachable", nil, wrongType},
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, row := range refusals {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := &refusal{scope: newScope(t), srv: redistest.Start(t, row.setup...)}
			r.rdb = r.srv.Client(t)
			row.run(t, r)
			if t.Failed() {
				t.Logf("the caller must see: %s", row.sees)
			}
		})
	}
}

// refusal is a server that refuses something.
type refusal struct {
	*scope
	srv *redistest.Server
	rdb *redis.Client // may do everything
}

const appPassword = "secret"

// app adds a user that may do what a program with locks must, but for some rules.
func app(but ...string) []redistest.Option {
	rules := append([]string{"on", ">" + appPassword}, strings.Fields(appACL)...)
	return []redistest.Option{redistest.WithUser("app", append(rules, but...)...)}
}

// restricted gives a client of that user.
func (r *refusal) restricted(t *testing.T, opts ...lock.Option) *lock.Client {
	t.Helper()
	return r.open(t, r.srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", appPassword }), opts...)
}

// errors counts what the clients of the scope count.
func (r *refusal) errors(t *testing.T, operation, kind string) int {
	t.Helper()
	return int(r.sum(t, telemetry.MetricErrors, "lockdog.operation="+operation, "error.type="+kind))
}

func (r *refusal) exists(t *testing.T, key string) bool {
	t.Helper()
	n, err := r.rdb.Exists(context.Background(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// mustMention fails the test unless the error has the text, and the lock's name.
func mustMention(t *testing.T, err error, name, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), name) {
		t.Errorf("the error is %v; it should have %q and %q", err, name, text)
	}
}

// refusedAcquire: the lock is refused, in so many tries, and nothing of it is left.
func refusedAcquire(kind, text string, tries int) func(*testing.T, *refusal) {
	return func(t *testing.T, r *refusal) {
		c := r.restricted(t)
		_, err := c.Mutex("job").TryLock(t.Context())
		mustMention(t, err, "job", text)
		if n := r.errors(t, "acquire", kind); n != tries {
			t.Errorf("errors %v, want %d of type %s", r.series(t, telemetry.MetricErrors), tries, kind)
		}
		if got := attrsOf(r.spansNamed("acquire default")[0]); got["error.type"] != kind || got["lockdog.outcome"] != "error" {
			t.Errorf("the acquire span says %v, want error.type %s", got, kind)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err = c.Mutex("job").Lock(ctx) // who would wait is told, too
		mustMention(t, err, "job", text)
		free(t, try(t, newScope(t).open(t, r.rdb).Mutex("job")))
	}
}

// deafWaiter: the subscription is refused.
func deafWaiter(t *testing.T, r *refusal) {
	l := try(t, newScope(t).open(t, r.rdb).Mutex("job")) // for DefaultLease
	c := r.restricted(t)
	waiter := begin(t.Context(), c.Mutex("job"))
	eventually(t, patience, func() bool { return r.errors(t, "subscribe", "acl") > 0 })
	eventually(t, patience, func() bool { return r.sum(t, telemetry.MetricWakeups, "lockdog.wakeup.source=poll") >= 5 })
	free(t, l)
	l = granted(t, waiter)
	free(t, l) // though it may be forbidden to publish it
	eventually(t, patience, func() bool { return !r.exists(t, "job") })
}

// deafHolder: the control channel is refused, all else works.
func deafHolder(t *testing.T, r *refusal) {
	c, other := r.restricted(t, lock.WithWatchdog(steady)), newScope(t).open(t, r.rdb)
	l := try(t, c.Mutex("job"))
	eventually(t, patience, func() bool { return r.errors(t, "subscribe", "acl") > 0 })
	waiter := begin(t.Context(), other.Mutex("job"))
	waiting(t, other, 1)
	if was, err := other.Mutex("job").ForceUnlock(t.Context()); err != nil || !was {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	free(t, granted(t, waiter))
	await(t, "Done", l.Ended())
	mustMatch(t, l.Err(), lock.ErrLost)
	_, err := c.Mutex("job").ForceUnlock(t.Context()) // of a free lock: there is nobody to tell
	if err != nil {
		t.Errorf("ForceUnlock: %v", err)
	}
}

// muteRelease: the release is done but can't be told.
func muteRelease(t *testing.T, r *refusal) {
	c, other := r.restricted(t, lock.WithWatchdog(1500*time.Millisecond)), newScope(t).open(t, r.rdb)
	l := try(t, c.Mutex("job"))
	waiter := begin(t.Context(), other.Mutex("job"))
	waiting(t, other, 1)
	free(t, l)
	if n := r.errors(t, "release", "acl"); n != 1 {
		t.Errorf("errors %v, want one of a release", r.series(t, telemetry.MetricErrors))
	}
	free(t, granted(t, waiter)) // by its timer
	mustMatch(t, l.Release(t.Context()), lock.ErrReleased)
}

// uncountedRelease: those who hear of a release can't be counted, so that all are told.
func uncountedRelease(t *testing.T, r *refusal) {
	c, other := r.restricted(t, lock.WithWatchdog(far)), newScope(t).open(t, r.rdb, lock.WithWatchdog(far))
	r.forbid(t, "~lockdog_wait:*", "+zadd", "+zcard", "+zrange", "+zrem", "+zscore")
	l := try(t, c.Mutex("job"))
	waiter := begin(t.Context(), other.Mutex("job"))
	asleep(t, other, 1)
	free(t, l)
	free(t, granted(t, waiter))              // long before its timer
	counted := r.errors(t, "release", "acl") // one release of many doesn't count them

	l = try(t, c.Mutex("job"))
	heir := begin(t.Context(), c.Mutex("job"))
	asleep(t, c, 1)
	free(t, l)
	free(t, granted(t, heir))
	if counted > 1 {
		t.Errorf("errors %v, want one for each release", r.series(t, telemetry.MetricErrors))
	}
}

// muteNumbers: what nobody could be told of isn't done.
func muteNumbers(t *testing.T, r *refusal) {
	ctx, c := t.Context(), r.restricted(t)
	s, p, gate := c.UnleasedSemaphore("job:s"), c.Semaphore("job:p"), c.Latch("job:l")
	_, err := s.TrySetPermits(ctx, 5)
	must(t, "TrySetPermits", err)
	must(t, "Acquire", s.Acquire(ctx, 2))
	_, err = p.TrySetPermits(ctx, 1)
	must(t, "TrySetPermits", err)
	_, err = gate.TrySetCount(ctx, 1)
	must(t, "TrySetCount", err)
	number := func(key string) string { return r.rdb.Get(ctx, key).Val() }
	before := [...]string{number("job:s"), number("job:p"), number("job:l")}

	r.forbid(t, "resetchannels")
	set := func(_ bool, err error) error { return err }
	for _, call := range []struct {
		what string
		run  func() error
	}{
		{"UnleasedSemaphore.Release", func() error { return s.Release(ctx, 2) }},
		{"UnleasedSemaphore.AddPermits", func() error { return s.AddPermits(ctx, 1) }},
		{"UnleasedSemaphore.TrySetPermits", func() error { return set(c.UnleasedSemaphore("job:none").TrySetPermits(ctx, 1)) }},
		{"Semaphore.AddPermits", func() error { return p.AddPermits(ctx, 1) }},
		{"Semaphore.EnsurePermits", func() error { return p.EnsurePermits(ctx, 5) }},
		{"Semaphore.EnsurePermits of one that was never set", func() error { return c.Semaphore("job:unset").EnsurePermits(ctx, 5) }},
		{"Latch.CountDown", func() error { return gate.CountDown(ctx) }},
		{"Latch.TrySetCount", func() error { return set(c.Latch("job:open").TrySetCount(ctx, 1)) }},
	} {
		for range 2 {
			if err := call.run(); err == nil || !refusedByACL(err) && !strings.Contains(err.Error(), "publish") {
				t.Errorf("%s: %v", call.what, err)
			}
		}
	}
	if after := [...]string{number("job:s"), number("job:p"), number("job:l")}; after != before {
		t.Errorf("the numbers are %v, want %v", after, before)
	}
	for _, key := range []string{"job:none", "job:unset", "job:open"} {
		if r.exists(t, key) {
			t.Errorf("%s is set", key)
		}
	}

	r.forbid(t, "allchannels")
	must(t, "Release", s.Release(ctx, 2))
	must(t, "CountDown", gate.CountDown(ctx))
	mustBe(t, "left", number("job:s"), "5")
	mustBe(t, "open", r.exists(t, "job:l"), false)
}

// refusedHandOver: the heir can't be given its lease.
func refusedHandOver(t *testing.T, r *refusal) {
	c := r.restricted(t)
	l := try(t, c.Mutex("job"))
	heir := begin(t.Context(), c.Mutex("job"))
	listenedTo(t, r.rdb, "job")
	r.forbid(t, "-pexpire")
	if err := l.Release(t.Context()); err != nil {
		mustBe(t, "refused", refusedByACL(err), true)
	}
	if err := await(t, "the heir", heir).err; err == nil || !refusedByACL(err) {
		t.Errorf("the heir: %v", err)
	}
	eventually(t, patience, func() bool { return !r.exists(t, "job") })
}

// forbid changes what the restricted user may do, also on connections that exist.
func (r *refusal) forbid(t *testing.T, rules ...string) {
	t.Helper()
	if err := r.rdb.ACLSetUser(context.Background(), "app", rules...).Err(); err != nil {
		t.Fatal(err)
	}
}

// refusedRenewal: nothing is allowed any more.
func refusedRenewal(t *testing.T, r *refusal) {
	c := r.restricted(t, lock.WithWatchdog(1500*time.Millisecond))
	l := try(t, c.Mutex("job"))
	r.forbid(t, "-evalsha", "-eval")
	mustBeLost(t, l, lock.CauseUnreachable)
	mustMention(t, l.Err(), "job", "NOPERM")
	eventually(t, patience, func() bool { return !r.exists(t, "job") })
}

// listenedTo waits until a lock's releases are listened to.
func listenedTo(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	eventually(t, patience, func() bool {
		return rdb.PubSubNumSub(context.Background(), channel).Val()[channel] > 0
	})
}

package lock_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// expire has a key expire before anybody can look at it, and renew it: Redis counts for some 20 ms. It has no blanks, see transact.
const expire = "redis.call('pexpire',ARGV[1],1)for--[[]]i=1,5000000--[[]]do--[[]]end--[[]]return(1)"

// lossWays are what can become of such a key, in commands of one transaction.
var lossWays = []struct {
	commands string
	cause    lock.Cause
}{
	{"DEL KEY", lock.CauseMissing},
	{"UNLINK KEY", lock.CauseMissing},
	{"FLUSHALL", lock.CauseMissing},
	{"FLUSHDB", lock.CauseMissing},
	{"RENAME KEY KEY-away", lock.CauseMissing},
	{"EVAL " + expire + " 0 KEY", lock.CauseMissing},
	{"HDEL KEY OWNER", lock.CauseTaken}, // what is left is nobody's, and yet a lock
	{"DEL KEY; HSET KEY other 1", lock.CauseTaken},
}

// transact runs commands on a key in one transaction.
func transact(t *testing.T, rdb *redis.Client, commands, key string) {
	t.Helper()
	_, err := rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		for command := range strings.SplitSeq(strings.ReplaceAll(commands, "KEY", key), "; ") {
			var args []any
			for word := range strings.FieldsSeq(command) {
				args = append(args, word)
			}
			p.Do(t.Context(), args...)
		}
		return nil
	})
	must(t, commands, err)
}

// Whatever becomes of a key, its holder is told at once, of each kind.
func TestLossNotifications(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	for _, k := range append([]kindOfLock{several}, allKinds...) {
		sorted := k.name == "semaphore" // its permits are in a sorted set
		for i, way := range lossWays {
			name := strings.ReplaceAll(fmt.Sprintf("%s:%d", k.name, i), " ", "-")
			c := newScope(t).open(t, rdb, lock.WithLossNotifications(), lock.WithLease(far)) // its own: a client makes two calls ahead of time in 100 ms
			m, key := k.make(c, name), name
			if sorted {
				key = timeouts(name)
			}
			looked := func() int64 { n := s.Commands(t); return n["hmget"] + n["zmscore"] }
			before := looked()
			l := try(t, m)
			eventually(t, patience, func() bool { return looked() > before }) // from now on it is told
			commands, cause := way.commands, way.cause
			if sorted { // nobody's permit is another's
				commands, cause = strings.NewReplacer("HSET KEY other 1", "ZADD KEY 1 other", "HDEL KEY OWNER", "ZREMRANGEBYRANK KEY 0 -1").Replace(commands), lock.CauseMissing
			}
			commands = strings.ReplaceAll(commands, "OWNER", l.Owner())
			transact(t, rdb, commands, key)
			await(t, k.name+" "+commands, l.Ended())
			var lost *lock.LostError
			if err := l.Err(); !errors.As(err, &lost) || lost.Cause != cause {
				t.Errorf("%s, %s: %v", k.name, commands, err)
			}
			_ = l.Release(t.Context()) // of a Multi: what there is
		}
	}

	// The holder of an evicted key is told as if the key had been deleted.
	c := newScope(t).open(t, rdb, lock.WithLossNotifications(), lock.WithLease(far))
	before := s.Commands(t)["hmget"]
	l := try(t, c.Mutex("evicted"))
	eventually(t, patience, func() bool { return s.Commands(t)["hmget"] > before })
	must(t, "CONFIG SET", rdb.Do(t.Context(), "config", "set", "maxmemory-policy", "allkeys-random", "maxmemory", "1").Err())
	must(t, "PING", rdb.Ping(t.Context()).Err()) // Redis evicts before a command
	mustBeLost(t, l, lock.CauseMissing)
}

// tokenProvider is a program whose credentials change while it runs.
type tokenProvider struct{}

func (tokenProvider) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return auth.NewBasicCredentials("app", appPassword), func() error { return nil }, nil
}

// Credentials that a program hands out are for the connections that tell of losses, too.
func TestLossNotificationsWithStreamedCredentials(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithUser("app", "on", ">"+appPassword, "~*", "&*", "+@all"))
	rdb := s.Client(t, func(o *redis.Options) { o.StreamingCredentialsProvider = tokenProvider{} })
	c := newScope(t).open(t, rdb, lock.WithLossNotifications(), lock.WithLease(far))
	l := try(t, c.Mutex("job"))
	eventually(t, patience, func() bool { return s.Commands(t)["hmget"] > 0 })
	must(t, "DEL", s.Client(t).Del(t.Context(), "job").Err())
	await(t, "the loss", l.Ended())
}

// One of several who share a key has lost it: the others haven't. Renewals, which are changes too, end nothing.
func TestLossNotificationsOfOneHolder(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	s := newScope(t)
	c := s.open(t, rdb, lock.WithLossNotifications(), lock.WithLease(12*time.Second))
	if _, err := c.Semaphore("permits").TrySetPermits(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	long := lock.WithLease(far)
	readers := c.RWMutex("rw", long).RLocker()
	short := []*lock.Lease{try(t, c.Mutex("mutex")), try(t, c.RWMutex("rw").RLocker()), try(t, c.Semaphore("permits"))}
	kept := []*lock.Lease{try(t, readers), try(t, c.Semaphore("permits", long))}
	reader, permit := try(t, readers), try(t, c.Semaphore("permits", long))
	var until []time.Time
	for _, l := range kept {
		until = append(until, l.Deadline())
	}
	renewed := func() {
		since := time.Now()
		for _, l := range short {
			renewedPast(t, l, since.Add(12*time.Second))
		}
	}
	renewed()
	transact(t, rdb, "HDEL KEY "+reader.Owner(), "rw")
	mustBeLost(t, reader, lock.CauseTaken)
	must(t, "ZREM", rdb.ZRem(t.Context(), "{permits}:timeout", permitMember(permit.Owner())).Err())
	mustBeLost(t, permit, lock.CauseMissing)
	renewed()
	mustAllLive(t, slices.Concat(short, kept))
	for i, l := range kept {
		if !l.Deadline().Equal(until[i]) {
			t.Errorf("%s was in doubt", l.Name())
		}
	}
	if n := s.sum(t, telemetry.MetricErrors); n != 0 {
		t.Errorf("%v errors: %v", n, errorsOf(t, s))
	}
	freeAll(t, slices.Concat(short, kept))
}

// A lease that somebody has cut short is renewed at once.
func TestLossNotificationsOfShorterLease(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	c := newScope(t).open(t, rdb, lock.WithLossNotifications(), lock.WithLease(far))
	l := try(t, c.Mutex("job"))
	before := l.Deadline()
	transact(t, rdb, "PEXPIRE KEY 9000", "job")
	eventually(t, patience, func() bool { return l.Deadline().After(before) })
	if ttl := rdb.PTTL(t.Context(), "job").Val(); ttl < 20*time.Second {
		t.Errorf("the lease ends after %v", ttl)
	}
	transact(t, rdb, "SET KEY text", "job") // no lock at all: there is nothing that could be renewed
	mustBeLost(t, l, lock.CauseTaken)
}

// Many locks are looked at together, and renewed together.
func TestLossNotificationsOfMany(t *testing.T) {
	t.Parallel()
	const locks = 200
	s := redistest.Start(t)
	rdb, seen := s.Client(t), newScope(t)
	c := seen.open(t, rdb, lock.WithLossNotifications(), lock.WithLease(far))
	began := time.Now()
	leases := many(t, c, locks)
	must(t, "FLUSHALL", rdb.FlushAll(t.Context()).Err())
	for _, l := range leases {
		mustBeLost(t, l, lock.CauseMissing)
	}
	calls := seen.sent(t, telemetry.PurposeRenew)
	most := locks/10 + int(time.Since(began)/(20*time.Millisecond)) // there are so many looks
	if n := errorsOf(t, seen); calls > most || len(n) > 0 {         // a flush is no broken connection
		t.Errorf("%d calls; errors: %v", calls, n)
	}
	t.Logf("%d locks: told by %d calls", locks, calls)
}

// trackers returns the ids of the connections over which a server's clients read tracked keys (they have a redirection), and of those that
// get the invalidations.
func trackers(t *testing.T, rdb *redis.Client) (data, invalidations []string) {
	t.Helper()
	text, err := rdb.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		field := make(map[string]string)
		for _, word := range strings.Fields(line) {
			name, value, _ := strings.Cut(word, "=")
			field[name] = value
		}
		if field["redir"] != "-1" && field["redir"] != "" {
			data, invalidations = append(data, field["id"]), append(invalidations, field["redir"])
		}
	}
	return data, invalidations
}

// Broken connections are replaced, and what happened meanwhile is reported. The loss of the connection over which keys are read isn't
// noticed before its next use, which may be a PING.
func TestLossNotificationsAfterABreak(t *testing.T) {
	t.Parallel()
	for what, which := range map[string]func(data, invalidations []string) []string{
		"invalidations": func(_, invalidations []string) []string { return invalidations },
		"data":          func(data, _ []string) []string { return data },
		"both":          func(data, invalidations []string) []string { return append(data, invalidations...) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			rdb := server.Client(t)
			s := newScope(t)
			c := s.open(t, rdb, lock.WithLossNotifications(), lock.WithLease(far))
			kept, l := try(t, c.Mutex("kept")), try(t, c.Mutex("job"))
			eventually(t, patience, func() bool { return server.Commands(t)["hmget"] >= 2 })
			for _, id := range which(trackers(t, rdb)) {
				must(t, "CLIENT KILL", rdb.ClientKillByFilter(t.Context(), "ID", id).Err())
			}
			transact(t, rdb, "DEL KEY", "job")
			mustBeLost(t, l, lock.CauseMissing)
			transact(t, rdb, "DEL KEY", "kept")
			mustBeLost(t, kept, lock.CauseMissing)
			if n := s.sum(t, telemetry.MetricPubSubReconnects); n != 1 {
				t.Errorf("%v reconnects: %v", n, errorsOf(t, s))
			}
			closeSoon(c)
			eventually(t, patience, func() bool { return len(which(trackers(t, rdb))) == 0 })
		})
	}
}

// Where Redis refuses, that is said once, and leases go on as without the option.
func TestLossNotificationsRefused(t *testing.T) {
	t.Parallel()
	const lease = 12 * time.Second
	server := redistest.Start(t)
	u := newACLUser(t, "app", []*redistest.Server{server}, append(strings.Fields(appACL), "+client|id", "&__redis__:invalidate"))
	c := u.open(t, redistest.Open(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}, Username: "app", Password: appPassword}),
		lock.WithLease(lease), lock.WithLossNotifications())
	said := telemetry.Log{Level: slog.LevelWarn, Message: "lockdog: Redis refuses WithLossNotifications; holders are told of a loss at the next renewal"}
	l, other := try(t, c.Mutex("app:1")), try(t, c.Mutex("app:2"))
	eventually(t, patience, func() bool { return len(u.records(t, said)) > 0 })
	renewedPast(t, l, time.Now().Add(lease))
	mustAllLive(t, []*lock.Lease{l, other})
	if all := u.records(t, said); len(all) != 1 || !strings.Contains(fmt.Sprint(all[0]["error"]), "NOPERM") {
		t.Errorf("the log says %v", all)
	}
	if n := u.sum(t, telemetry.MetricErrors, "lockdog.operation=subscribe", "error.type=acl"); n != 1 {
		t.Errorf("%v errors counted: %v", n, errorsOf(t, u.scope))
	}
	transact(t, server.Client(t), "DEL KEY", "app:1")
	mustBeLost(t, l, lock.CauseMissing)
	free(t, other)
}

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// aclKinds do what a program does with locks of a kind that it doesn't with a Mutex. They are called as the README's table has them.
var aclKinds = map[string]func(u *aclUser) error{
	"FairMutex":          fairCalls,
	"RWMutex":            rwCalls,
	"Permits":            permitCalls,
	"Semaphore":          semaphoreCalls,
	"Latch":              latchCalls,
	"Multi":              multiCalls,
	"Quorum":             quorumCalls,
	"WithRedissonTokens": tokenCalls,
	"WithReplicas":       replicaCalls,
	aclCluster:           clusterCalls,
}

const aclCluster = "on a Cluster"

// aclTable are the rules that kinds need besides the Mutex's, as the README lists them.
func aclTable(t *testing.T) map[string][]string {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "<!-- acl -->\n")
	table, _, ok := strings.Cut(rest, "<!-- /acl -->")
	if !ok {
		t.Fatal("README.md has no <!-- acl --> ... <!-- /acl -->")
	}
	rules := make(map[string][]string)
	for _, row := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		cells := strings.Split(strings.ReplaceAll(row, `\|`, "\x00"), "|")
		if len(cells) != 5 {
			t.Fatalf("README.md: a row of %d cells: %s", len(cells)-2, row)
		}
		name := strings.Trim(cells[1], "` ")
		for _, cell := range cells[2:4] {
			text := strings.ReplaceAll(strings.Trim(cell, "` "), "\x00", "|")
			rules[name] = append(rules[name], strings.Fields(strings.TrimPrefix(text, "none"))...)
		}
	}
	return rules
}

// The rules that the README lists for a kind are enough, with the Mutex's, for every call, and none can be left out.
func TestKindsACL(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	node := startOneNodeCluster(t)
	table, mutex := aclTable(t), strings.Fields(appACL)
	for kind := range table {
		if aclKinds[kind] == nil {
			t.Errorf("README.md has rules for %q, which nobody tests", kind)
		}
	}
	user := 0
	for kind, calls := range aclKinds {
		rules, listed := table[kind]
		if !listed {
			t.Errorf("README.md has no rules for %q", kind)
			continue
		}
		at := servers
		if kind == aclCluster {
			at = []*redistest.Server{node}
		}
		for i := -1; i < len(rules); i++ {
			left, title := rules, kind+"/all rules"
			if i >= 0 {
				left, title = slices.Delete(slices.Clone(rules), i, i+1), kind+"/without "+rules[i]
			}
			user++
			name := fmt.Sprintf("app%d", user)
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				u := newACLUser(t, name, at, slices.Concat(mutex, left))
				switch err := u.counted(calls(u)); {
				case i < 0 && err != nil:
					t.Errorf("a user with %q besides the Mutex's: %v", rules, err)
				case i >= 0 && err == nil:
					t.Error("nobody missed it")
				}
			})
		}
	}
}

// startOneNodeCluster starts a cluster of one node.
func startOneNodeCluster(t *testing.T) *redistest.Server {
	t.Helper()
	s := redistest.Start(t, redistest.WithConfig("cluster-enabled", "yes"), redistest.WithConfig("cluster-announce-ip", "127.0.0.1"))
	rdb := s.Client(t)
	must(t, "CLUSTER ADDSLOTS", rdb.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	eventually(t, patience, func() bool { return strings.Contains(rdb.ClusterInfo(t.Context()).Val(), "cluster_state:ok") })
	return s
}

// aclUser is a Redis user with few rules, and a program that logs in as that.
type aclUser struct {
	*scope
	t       *testing.T
	ctx     context.Context
	name    string // its locks' names start with that, and a colon
	servers []*redistest.Server
}

// newACLUser makes the user at the servers, whose locks are called otherwise than those of the rules.
func newACLUser(t *testing.T, name string, servers []*redistest.Server, rules []string) *aclUser {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	words := []string{"on", ">" + appPassword}
	for _, r := range rules {
		words = append(words, strings.ReplaceAll(r, "job*", name+":*"))
	}
	for _, s := range servers {
		must(t, "ACL SETUSER", s.Client(t).ACLSetUser(ctx, name, words...).Err())
	}
	return &aclUser{scope: newScope(t), t: t, ctx: ctx, name: name, servers: servers}
}

// client is the program's.
func (u *aclUser) client() *lock.Client { return u.clientAt(0) }

func (u *aclUser) clientAt(i int) *lock.Client {
	s := u.servers[i]
	rdb := redistest.Open(u.t, &redis.UniversalOptions{
		Addrs: []string{s.Addr()}, Username: u.name, Password: appPassword,
		IsClusterMode: len(u.servers) == 1,
	})
	return u.open(u.t, rdb, lock.WithWatchdog(900*time.Millisecond))
}

// admin may do everything.
func (u *aclUser) admin() *redis.Client { return u.servers[0].Client(u.t) }

// counted is err, or what errors the program has counted.
func (u *aclUser) counted(err error) error {
	if n := u.series(u.t, telemetry.MetricErrors); err == nil && len(n) > 0 {
		return fmt.Errorf("errors counted: %v", n)
	}
	return err
}

// until waits for what comes soon unless something was refused.
func (u *aclUser) until(what string, cond func() bool) error {
	for !cond() {
		if err := u.counted(u.ctx.Err()); err != nil {
			return fmt.Errorf("%s: not so: %w", what, err)
		}
		<-time.After(5 * time.Millisecond)
	}
	return nil
}

// waits waits until so many calls stand in a client's lines and have been told that they have to.
func (u *aclUser) waits(c *lock.Client, n, asked int) error {
	return u.until(fmt.Sprint(n, " waiters"), func() bool {
		have := 0
		for _, l := range c.Leases() {
			if l.State == lock.StateWaiting {
				have++
			}
		}
		return have == n && u.sent(u.t, telemetry.PurposeAcquire) >= asked
	})
}

// renewed waits for a renewal.
func (u *aclUser) renewed(l *lock.Lease) error {
	start := l.Deadline()
	return u.until("a renewal", func() bool { return l.Deadline().After(start) })
}

// had is a lease that was waited for, and given back.
func (u *aclUser) had(next <-chan taken) error {
	got := <-next
	if got.err != nil {
		return got.err
	}
	return got.Release(u.ctx)
}

// inTurn is the first error of several steps.
func inTurn(all ...func() error) error {
	for i, step := range all {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// Before it waits one of Redisson's, who is gone.
func fairCalls(u *aclUser) error {
	c, admin, name := u.client(), u.admin(), u.name+":a"
	m := c.FairMutex(name)
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
		func() error { return admin.ZAdd(u.ctx, deadlines, redis.Z{Score: 1, Member: somebodyElse}).Err() },
		func() error { return u.renewed(l) },
		func() error { return l.Release(u.ctx) },
		func() error { return u.had(next) },
		func() error { return u.had(after) },
		func() (err error) { l, err = m.TryLock(u.ctx); return err },
		func() error { _, err := m.ForceUnlock(u.ctx); return err },
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
		func() error {
			if _, err := m.TryRLock(u.ctx); !errors.Is(err, lock.ErrHeld) {
				return fmt.Errorf("a reader beside a writer that waits: %w", errors.Join(err, errNotHeld))
			}
			return nil
		},
		func() error { return r.Release(u.ctx) },
		func() error { _, err := m.Inspect(u.ctx); return err },
		func() error { _, err := m.ForceUnlock(u.ctx); return err },
		func() error { return u.had(next) },
	)
}

var errNotHeld = errors.New("it should match ErrHeld")

// One permit was taken by somebody who is gone.
func permitCalls(u *aclUser) error {
	c, name := u.client(), u.name+":a"
	p := c.Permits(name)
	var one, two *lock.Lease
	var next <-chan taken
	return inTurn(
		func() error { _, err := p.SetPermits(u.ctx, 1); return err },
		func() error {
			return u.admin().ZAdd(u.ctx, "{"+name+"}:timeout", redis.Z{Score: 1, Member: "gone"}).Err()
		},
		func() (err error) { one, err = p.TryLock(u.ctx); return err },
		func() (err error) { two, err = p.TryLock(u.ctx); return err },
		func() error { next = begin(u.ctx, p); return u.waits(c, 1, 4) },
		func() error { return u.renewed(one) },
		func() error { return one.Release(u.ctx) },
		func() error { return u.had(next) },
		func() error { return two.Release(u.ctx) },
		func() error { return p.Resize(u.ctx, 1) },
		func() error {
			if n, err := p.Available(u.ctx); n != 3 || err != nil {
				return fmt.Errorf("%d permits, %w", n, err)
			}
			return nil
		},
	)
}

func semaphoreCalls(u *aclUser) error {
	c := u.client()
	s := c.Semaphore(u.name + ":a")
	var next <-chan error
	return inTurn(
		func() error { _, err := s.SetPermits(u.ctx, 1); return err },
		func() error { return s.TryAcquire(u.ctx, 1) },
		func() error { next = acquiring(u.ctx, s, 1); return u.waits(c, 1, 3) },
		func() error { return s.Release(u.ctx, 1) },
		func() error { return <-next },
		func() error { return s.Resize(u.ctx, -1) },
		func() error { _, err := s.Available(u.ctx); return err },
	)
}

func latchCalls(u *aclUser) error {
	c := u.client()
	l := c.Latch(u.name + ":a")
	var opened <-chan error
	return inTurn(
		func() error { _, err := l.Set(u.ctx, 1); return err },
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
		func() (err error) { l, err = m.TryLock(u.ctx); return err },
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
		func() error { _, err := other.Mutex(name).ForceUnlock(u.ctx); return err },
		func() error { return u.until("loss", func() bool { return l.Err() != nil }) },
	)
}

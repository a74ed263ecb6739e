package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/acl"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// appACL is what a program's Redis user needs to take locks whose names start with "job".
var appACL = strings.Join(acl.Mutex.Rules(), " ")

// rulesOf are the rules that a kind needs besides the Mutex's.
func rulesOf(t *testing.T, kind string) []string {
	t.Helper()
	for _, row := range acl.Others {
		if row.Kind == kind {
			return row.Rules()
		}
	}
	t.Fatalf("package acl has no rules for %q", kind)
	return nil
}

// aclCase is a user with some rules, and calls for which they are enough, or not.
type aclCase struct {
	name    string
	rules   []string
	enough  bool
	calls   func(u *aclUser) error
	cluster bool
}

// aclCases returns the cases of a row of package acl: one with all of its rules, and for each rule but +ping one
// without it.
func aclCases(t *testing.T, row acl.Row) (cases []aclCase) {
	t.Helper()
	calls := aclKinds[row.Kind]
	if calls == nil {
		t.Fatalf("package acl has rules for %q, which nobody tests", row.Kind)
	}
	var base []string
	if row.Kind != acl.Mutex.Kind {
		base = acl.Mutex.Rules()
	}
	rules, cluster := row.Rules(), row.Kind == aclCluster
	cases = append(cases, aclCase{row.Kind + "/all rules", slices.Concat(base, rules), true, calls, cluster})
	for i, rule := range rules {
		if rule != "+ping" { // sent over a subscription that was silent for 3 s only: TestACLNeedsPing
			cases = append(cases, aclCase{row.Kind + "/without " + rule, slices.Concat(base, rules[:i], rules[i+1:]), false, calls, cluster})
		}
	}
	return cases
}

// aclCasesOfPrefix returns two cases of a program with a key prefix that takes a Mutex, waits for it and unlocks it by
// force. The rules of a Mutex are enough with the prefix in them, and not enough without it.
func aclCasesOfPrefix(t *testing.T) []aclCase {
	waiting := strings.Join(rulesOf(t, "one of several"), " ")
	rules := func(places string) []string { return strings.Fields(places + " " + acl.Mutex.Commands) }
	places := strings.NewReplacer("~", "~app:", "&lockdog", "&app:lockdog").Replace(acl.Mutex.Places)
	calls := toTheFirstError(prefixCalls)
	return []aclCase{
		{"key prefix/in the rules", rules(places + " " + strings.ReplaceAll(waiting, "{job", "{app:job")), true, calls, false},
		{"key prefix/not in the rules", rules(acl.Mutex.Places + " " + waiting), false, calls, false},
	}
}

// TestACL checks that the rules of package acl, which docs/ACL.md lists, are enough for every call, and that none can
// be left out. A kind other than Mutex also has the Mutex's rules. The cases share servers, and each has its own user.
func TestACL(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	node := []*redistest.Server{startOneNodeCluster(t)}
	if len(aclKinds) != 1+len(acl.Others) {
		t.Errorf("calls of %d kinds, and rules for %d", len(aclKinds), 1+len(acl.Others))
	}
	cases := aclCasesOfPrefix(t)
	for _, row := range append([]acl.Row{acl.Mutex}, acl.Others...) {
		cases = append(cases, aclCases(t, row)...)
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at := servers
			switch {
			case c.cluster:
				at = node
			case strings.HasSuffix(c.name, "without +eval"): // the others' server knows the scripts
				at = []*redistest.Server{redistest.Start(t)}
			}
			u := newACLUser(t, fmt.Sprintf("app%d", i), at, c.rules)
			u.cluster = c.cluster
			if c.enough {
				u.patient()
			}
			switch err := u.counted(c.calls(u)); {
			case c.enough && err != nil:
				t.Errorf("a user with %q: %v", c.rules, err)
			case !c.enough && err == nil:
				t.Error("nobody missed it")
			}
		})
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
	cluster bool
	lease   time.Duration
	change  func(*redis.UniversalOptions) // how it logs in, nil: with its password
	hook    func(server int) redis.Hook   // of its clients, nil: none
}

// newACLUser creates the user at the servers. The names of its locks start with the user's name instead of "job", and
// its rules are changed accordingly.
func newACLUser(t *testing.T, name string, servers []*redistest.Server, rules []string) *aclUser {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	words := append([]string{"on", ">" + appPassword}, aclWords(name, rules)...)
	for _, s := range servers {
		must(t, "ACL SETUSER", s.Client(t).ACLSetUser(ctx, name, words...).Err())
	}
	return &aclUser{scope: newScope(t), t: t, ctx: ctx, name: name, servers: servers, lease: 900 * time.Millisecond}
}

// patient removes the time limit of the user's calls and makes leases longer, for a busy machine. It is for tests that
// expect no refusal.
func (u *aclUser) patient() {
	u.ctx, u.lease = u.t.Context(), 12*time.Second
}

// aclWords are rules for locks whose names start with another name than that of the rules, and a colon.
func aclWords(name string, rules []string) (words []string) {
	for _, r := range rules {
		words = append(words, strings.ReplaceAll(r, "job*", name+":*"))
	}
	return words
}

// client is the program's.
func (u *aclUser) client(opts ...lock.Option) *lock.Client { return u.clientAt(0, opts...) }

func (u *aclUser) clientAt(i int, opts ...lock.Option) *lock.Client {
	s := u.servers[i]
	o := &redis.UniversalOptions{
		Addrs: []string{s.Addr()}, Username: u.name, Password: appPassword,
		IsClusterMode: u.cluster,
	}
	if u.change != nil {
		u.change(o)
	}
	opts = append([]lock.Option{lock.WithLease(u.lease), lock.WithClientID(u.name)}, opts...)
	rdb := redistest.Open(u.t, o)
	if u.hook != nil {
		rdb.AddHook(u.hook(i))
	}
	return u.open(u.t, rdb, opts...)
}

// admin may do everything.
func (u *aclUser) admin() *redis.Client { return u.servers[0].Client(u.t) }

// counted is err, or what errors the program has counted. That an answer came late says nothing of the rules.
func (u *aclUser) counted(err error) error {
	n := u.series(u.t, telemetry.MetricErrors)
	maps.DeleteFunc(n, func(labels string, _ float64) bool {
		return strings.Contains(labels, "error.type=timeout") || labels == "error.type=_OTHER,lockdog.operation=acquire" // too few replicas
	})
	if err == nil && len(n) > 0 {
		return fmt.Errorf("errors counted: %v", n)
	}
	return err
}

// aclFailure is how calls of an aclUser end: see toTheFirstError.
type aclFailure struct{ error }

// toTheFirstError returns a function that runs calls and returns the first error with which must ended them.
func toTheFirstError(calls func(u *aclUser)) func(u *aclUser) error {
	return func(u *aclUser) (err error) {
		defer func() {
			why := recover()
			failure, failed := why.(aclFailure)
			if why != nil && !failed {
				panic(why)
			}
			err = failure.error
		}()
		calls(u)
		return nil
	}
}

// must ends the calls with an error.
func (u *aclUser) must(what string, err error) {
	if err != nil {
		panic(aclFailure{fmt.Errorf("%s: %w", what, err)})
	}
}

// mustFail ends the calls unless that is the error.
func (u *aclUser) mustFail(what string, err, want error) {
	if !errors.Is(err, want) {
		u.must(what, fmt.Errorf("%w, want %w", errors.Join(err, errOther), want))
	}
}

func (u *aclUser) mustBe(what string, got, want int64) {
	if got != want {
		u.must(what, fmt.Errorf("%d, want %d", got, want))
	}
}

var errOther = errors.New("it should have come to something else")

// until waits for what comes soon unless something was refused.
func (u *aclUser) until(what string, cond func() bool) {
	for !cond() {
		u.must(what+": not so", u.counted(u.ctx.Err()))
		<-time.After(5 * time.Millisecond)
	}
}

// waits waits until so many calls stand in a client's lines and have asked so often.
func (u *aclUser) waits(c *lock.Client, n, asked int) {
	u.until(fmt.Sprint(n, " waiters"), func() bool {
		have := 0
		for _, l := range c.Leases() {
			if l.State == lock.StateWaiting {
				have++
			}
		}
		return have == n && u.sent(u.t, telemetry.PurposeAcquire) >= asked
	})
}

// asleep waits until the one call in a client's lines has nothing left to ask.
func (u *aclUser) asleep(c *lock.Client) { u.until("asleep", func() bool { return lock.Asleep(c, 1) }) }

// listens subscribes an administrator to a channel.
func (u *aclUser) listens(channel string) *redis.PubSub {
	sub := u.admin().Subscribe(u.ctx, channel)
	u.must("SUBSCRIBE", second(sub.Receive(u.ctx)))
	return sub
}

// take takes a lock that must be free.
func (u *aclUser) take(m lock.Locker) *lock.Lease {
	l, err := m.TryLock(u.ctx)
	u.must("TryLock", err)
	return l
}

func (u *aclUser) free(l *lock.Lease) { u.must("Release", l.Release(context.WithoutCancel(u.ctx))) }

// got is a lease that was waited for.
func (u *aclUser) got(next <-chan taken) *lock.Lease {
	got := <-next
	u.must("Lock", got.err)
	return got.Lease
}

// renewed waits for a renewal.
func (u *aclUser) renewed(l *lock.Lease) {
	start := l.Deadline()
	u.until("a renewal", func() bool { return l.Deadline().After(start) || l.Err() != nil })
	u.must("the lease", l.Err())
}

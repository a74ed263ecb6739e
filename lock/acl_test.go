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

// The rules of package acl, which docs/ACL.md lists, are enough for every call, of a kind with the Mutex's, and none can be left out. Each case has
// a user of its own, at servers that they share.
func TestACL(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	node := startOneNodeCluster(t)
	if len(aclKinds) != 1+len(acl.Others) {
		t.Errorf("calls of %d kinds, and rules for %d", len(aclKinds), 1+len(acl.Others))
	}
	user := 0
	for _, row := range append([]acl.Row{acl.Mutex}, acl.Others...) {
		kind, rules := row.Kind, row.Rules()
		calls := aclKinds[kind]
		if calls == nil {
			t.Errorf("package acl has rules for %q, which nobody tests", kind)
			continue
		}
		base, at := acl.Mutex.Rules(), servers
		switch kind {
		case acl.Mutex.Kind:
			base = nil
		case aclCluster:
			at = []*redistest.Server{node}
		}
		for i := -1; i < len(rules); i++ {
			left, title := rules, kind+"/all rules"
			if i >= 0 {
				if rules[i] == "+ping" { // sent over a subscription that was silent for 3 s only: TestACLNeedsPing
					continue
				}
				left, title = slices.Delete(slices.Clone(rules), i, i+1), kind+"/without "+rules[i]
			}
			user++
			name := fmt.Sprintf("app%d", user)
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				at := at
				if strings.HasSuffix(title, "without +eval") { // the others' server knows the scripts
					at = []*redistest.Server{redistest.Start(t)}
				}
				u := newACLUser(t, name, at, slices.Concat(base, left))
				u.cluster = kind == aclCluster
				if i < 0 { // nothing may fail
					u.patient()
				}
				switch err := u.counted(calls(u)); {
				case i < 0 && err != nil:
					t.Errorf("a user with %q: %v", slices.Concat(base, rules), err)
				case i >= 0 && err == nil:
					t.Error("nobody missed it")
				}
			})
		}
	}
	aclWithPrefix(t, servers)
}

// aclWithPrefix runs the rules of a Mutex with a key prefix in them, which are enough for a program that has it, a Mutex that another client waits
// for, and its forced unlock; and those without it, which are not.
func aclWithPrefix(t *testing.T, servers []*redistest.Server) {
	waiting := strings.Join(rulesOf(t, "one of several"), " ")
	for user, places := range map[string]string{
		"prefixed": strings.NewReplacer("~", "~app:", "&lockdog", "&app:lockdog").Replace(acl.Mutex.Places) + " " +
			strings.ReplaceAll(waiting, "{job", "{app:job"),
		"bare": acl.Mutex.Places + " " + waiting,
	} {
		t.Run("key prefix/"+user, func(t *testing.T) {
			t.Parallel()
			u := newACLUser(t, user, servers, strings.Fields(places+" "+acl.Mutex.Commands))
			enough := user == "prefixed"
			if enough {
				u.patient()
			}
			if err := u.counted(prefixCalls(u)); (err == nil) != enough {
				t.Errorf("with %s: %v", places, err)
			}
		})
	}
}

// startOneNodeCluster starts a cluster of one node.
func startOneNodeCluster(t *testing.T, opts ...redistest.Option) *redistest.Server {
	t.Helper()
	s := redistest.Start(t, append(opts, redistest.WithConfig("cluster-enabled", "yes"), redistest.WithConfig("cluster-announce-ip", "127.0.0.1"))...)
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

// newACLUser makes the user at the servers. The names of its locks start otherwise than those of the rules.
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

// patient has the user's calls take what they take on a busy machine: for who expects no refusal.
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
	maps.DeleteFunc(n, func(labels string, _ float64) bool { return strings.Contains(labels, "error.type=timeout") })
	if err == nil && len(n) > 0 {
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

// waits waits until so many calls stand in a client's lines and have asked so often.
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
	err := u.until("a renewal", func() bool { return l.Deadline().After(start) || l.Err() != nil })
	return errors.Join(err, l.Err())
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

// expected is nil for the error that a step has to end with.
func expected(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("%w, want %w", errors.Join(err, errOther), want)
}

var errOther = errors.New("it should have failed otherwise")

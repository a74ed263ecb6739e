package lock_test

import (
	"strings"
	"testing"

	"github.com/lockdog/lockdog/internal/acl"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// The rules of a Mutex with a key prefix in them are enough for a program that has it, a Mutex that another client waits for, and its forced unlock. Without
// the prefix in them they are not.
func TestACLWithPrefix(t *testing.T) {
	t.Parallel()
	waiting := strings.Join(rulesOf(t, "one of several"), " ")
	prefixed := strings.NewReplacer("~", "~app:", "&lockdog", "&app:lockdog").Replace(acl.Mutex.Places)
	servers := []*redistest.Server{redistest.Start(t)}
	for _, c := range []struct {
		user, rules string
		enough      bool
	}{
		{"prefixed", prefixed + " " + strings.ReplaceAll(waiting, "{job", "{app:job"), true},
		{"bare", acl.Mutex.Places + " " + waiting, false},
	} {
		t.Run(c.user, func(t *testing.T) {
			t.Parallel()
			u := newACLUser(t, c.user, servers, strings.Fields(c.rules+" "+acl.Mutex.Commands))
			if c.enough {
				u.patient()
			}
			if err := u.counted(prefixCalls(u)); (err == nil) != c.enough {
				t.Errorf("with %s: %v", c.rules, err)
			}
		})
	}
}

// prefixCalls take a lock, wait for it and take it away, all with a key prefix.
func prefixCalls(u *aclUser) error {
	holder, other := u.client(lock.WithKeyPrefix("app:")), u.client(lock.WithKeyPrefix("app:"))
	name := u.name + ":1"
	first, err := holder.Mutex(name).Lock(u.ctx)
	if err != nil {
		return err
	}
	type result struct {
		lease *lock.Lease
		err   error
	}
	waited := make(chan result, 1)
	go func() {
		l, err := other.Mutex(name).Lock(u.ctx)
		waited <- result{l, err}
	}()
	second := result{}
	return inTurn(
		func() error { return u.waits(other, 1, 1) },
		func() error { return first.Release(u.ctx) },
		func() error { second = <-waited; return second.err },
		func() error { _, err := holder.Mutex(name).ForceUnlock(u.ctx); return err },
		func() error { return u.until("the loss", func() bool { return second.lease.Err() != nil }) },
	)
}

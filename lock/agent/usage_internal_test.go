package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/agentlink"
)

// TestSessionLimits: a session too many is refused, whatever limit it exceeds, until another has ended.
func TestSessionLimits(t *testing.T) {
	t.Parallel()
	u := usage{limits: limits{sessions: 5, ofUser: 3, ofProcess: 2}, users: map[uint32]*user{}}
	entered := map[peer][]*connection{}
	for n, step := range []struct {
		peer  peer
		leave bool
		want  string // the error
	}{
		{peer: peer{uid: 1, pid: 10}},
		{peer: peer{uid: 1, pid: 10}},
		{peer: peer{uid: 1, pid: 10}, want: "process 10 has 2 sessions already"},
		{peer: peer{uid: 1, pid: 11}},
		{peer: peer{uid: 1, pid: 12}, want: "user 1 has 3 sessions already"},
		{peer: peer{uid: 1, pid: 10}, leave: true},
		{peer: peer{uid: 1, pid: 10}},
		{peer: peer{uid: 2}}, // two processes of another PID namespace
		{peer: peer{uid: 2}},
		{peer: peer{uid: 3, pid: 30}, want: "the agent has 5 sessions already"},
		{peer: peer{uid: 1, pid: 11}, leave: true},
		{peer: peer{uid: 2}}, // and a third
	} {
		if step.leave {
			u.leave(&step.peer, entered[step.peer][0])
			entered[step.peer] = entered[step.peer][1:]
			continue
		}
		c := new(connection)
		entered[step.peer] = append(entered[step.peer], c)
		if _, err := u.enter(&step.peer, c); (err == nil) != (step.want == "") || err != nil && err.Error() != step.want {
			t.Errorf("step %d: %v, want %q", n, err, step.want)
		}
	}
	if u.count() != 5 {
		t.Errorf("%d sessions", u.count())
	}
}

// TestByteLimit: what a user may make the agent keep is limited. It is given back when a lock is free, when the session of a process that lives has
// ended, and for a process that has died when Redis has answered, or when the leases are over.
func TestByteLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		cable := redistest.NewProxy(t, srv.Addr())
		var logged strings.Builder
		a, err := New(srv.Client(t, func(o *redis.Options) { o.Addr = cable.Addr() }), Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Close(context.Background()) }()
		hold := func(n int) agentlink.Hold {
			key := fmt.Sprint("job", n)
			return agentlink.Hold{
				Lease:   agentlink.Lease{Key: key, Owner: fmt.Sprintf("x:0123456789abcdef-%d", n), Milliseconds: 30_000},
				Release: "release", Counter: "redisson_lock_token:{" + key + "}",
			}
		}
		one := hold(1)
		u := &user{limits: &limits{bytes: int64(3 * one.Bytes())}, id: 7}
		hs := &holds{agent: a, peer: &peer{}, user: u, held: map[string]*agentlink.Hold{}}
		note := func(freed []string, held ...int) {
			r := agentlink.Request{Freed: freed}
			for _, n := range held {
				r.Held = append(r.Held, hold(n))
			}
			hs.note(&r)
		}
		want := func(what string, locks int) {
			t.Helper()
			synctest.Wait()
			if got := u.bytes.Load(); got != int64(locks*one.Bytes()) {
				t.Errorf("%s: %d bytes, want those of %d locks", what, got, locks)
			}
		}
		note(nil, 1, 2, 2)
		want("one was told twice", 2)
		note(nil, 3, 4, 5)
		want("the limit", 3)
		note([]string{hold(1).Owner, "none"}, 6)
		want("one was freed", 3)
		if n := a.Status().Held; n != 3 {
			t.Errorf("%d are held", n)
		}
		hs.forget()
		want("the session is over", 0)

		note(nil, 1, 2, 3)
		cable.Refuse(t)
		cable.CutAll()
		hs.died()
		want("Redis doesn't answer", 3)
		time.Sleep(20 * time.Second)
		want("Redis still doesn't answer", 3)
		time.Sleep(20 * time.Second)
		want("the leases are over", 0)

		note(nil, 4)
		cable.Accept(t)
		time.Sleep(10 * time.Second)
		want("what a dead process had written came late, and was released", 0)
		if n := strings.Count(logged.String(), "\n"); n != 1 || !strings.Contains(logged.String(), "uid=7") {
			t.Errorf("logged %d lines:\n%s", n, logged.String())
		}
	})
}

// TestKeepForAPeerThatDoesNotRead: what the peer was told holds, whatever becomes of it: the lock isn't free before the last deadline.
func TestKeepForAPeerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		c, err := lock.New(srv.Client(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		l, err := c.Mutex("job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var told time.Time
		said := 0
		keep(t.Context(), &heldLock{lease: l}, func(line any) error {
			if said++; said == 4 {
				return io.ErrShortWrite
			}
			if d, ok := line.(deadlineLine); ok {
				if left := time.Until(told); left < 5*time.Second {
					t.Errorf("told %v before the end of what was told before", left)
				}
				told = d.Deadline
			} else {
				told = line.(heldLine).Deadline //nolint:forcetypeassert // there is no loss
			}
			return nil
		})
		if now := time.Now().Truncate(time.Millisecond); said != 4 || now.Before(told) || now.After(told.Add(20*time.Second)) || l.Err() == nil {
			t.Errorf("released at %v after %d lines, told %v, %v", now, said, told, l.Err())
		}
	})
}

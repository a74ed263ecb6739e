package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/agentlink"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// TestConnectionLimits: a connection too many is refused, whatever limit it exceeds, until another has ended.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	u := usage{limits: limits{connections: 5, ofUser: 3, ofProcess: 2}, users: map[uint32]*user{}}
	entered := map[peer][]*visitor{}
	for n, step := range []struct {
		peer  peer
		leave bool
		want  string // the error
	}{
		{peer: peer{uid: 1, pid: 10}},
		{peer: peer{uid: 1, pid: 10}},
		{peer: peer{uid: 1, pid: 10}, want: "process 10 has 2 connections already"},
		{peer: peer{uid: 1, pid: 11}},
		{peer: peer{uid: 1, pid: 12}, want: "user 1 has 3 connections already"},
		{peer: peer{uid: 1, pid: 10}, leave: true},
		{peer: peer{uid: 1, pid: 10}},
		{peer: peer{uid: 2}}, // two processes of another PID namespace
		{peer: peer{uid: 2}},
		{peer: peer{uid: 3, pid: 30}, want: "the agent has 5 connections already"},
		{peer: peer{uid: 1, pid: 11}, leave: true},
		{peer: peer{uid: 2}}, // and a third
	} {
		if step.leave {
			entered[step.peer][0].leave()
			entered[step.peer] = entered[step.peer][1:]
			continue
		}
		v, err := u.enter(nil, step.peer)
		if (err == nil) != (step.want == "") || err != nil && err.Error() != step.want {
			t.Errorf("step %d: %v, want %q", n, err, step.want)
		}
		entered[step.peer] = append(entered[step.peer], v)
	}
	for _, v := range entered[peer{uid: 2}] {
		v.stay()
		v.leave()
		v.leave()
	}
	if len(u.users) != 1 || u.visitors != 2 {
		t.Errorf("%d users, %d connections", len(u.users), u.visitors)
	}
}

// TestRefusedConnection: whoever exceeds a limit is told so.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, err := New(srv.Client(t), Config{})
	must(t, err)
	a.usage.limits = limits{connections: 10, ofUser: 10, ofProcess: 2, bytes: 400}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := Listen(socket, 0o600)
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	defer func() {
		must(t, a.Close(context.Background()))
		must(t, <-served)
	}()
	dial := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("unix", socket)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(15*time.Second)))
		t.Cleanup(func() { _ = c.Close() })
		return c, bufio.NewReader(c)
	}
	session, in := dial()
	_, err = io.WriteString(session, "POST /v1/session HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s\r\nTransfer-Encoding: chunked\r\n\r\n")
	must(t, err)
	idle, _ := dial()
	for range 3 {
		_, more := dial()
		if text, _ := io.ReadAll(more); !strings.HasPrefix(string(text), "HTTP/1.1 429 Too Many Requests\r\n") || !strings.Contains(string(text), "has 2 connections already") {
			t.Errorf("the third connection: %s", text)
		}
	}
	must(t, idle.Close())
	for count := 2; count > 1; { // the agent notices
		a.usage.mu.Lock()
		count = a.usage.visitors
		a.usage.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	idle, _ = dial()
	must(t, idle.Close())

	// The same session: requests that are too large, and more small ones than are allowed at a time.
	ask := func(key string) (reply string) {
		line := fmt.Sprintf(`{"id":1,"by":99999999,"node":%q,"leases":[{"key":%q,"owner":"x:%s-1","ms":1000}]}`, srv.Addr(), key, script.DigitsOf("s"))
		_, err := fmt.Fprintf(session, "%x\r\n%s\n\r\n", len(line)+1, line)
		must(t, err)
		for !strings.Contains(reply, `"id":1`) {
			if reply, err = in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		return reply
	}
	for range 10 {
		if got := ask("job"); !strings.Contains(got, `"renewed":[]}`) {
			t.Errorf("answered %s", got)
		}
		if got := ask(strings.Repeat("x", 400)); !strings.Contains(got, "asks for too much at a time") {
			t.Errorf("answered %s", got)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWhoMay: whom nobody knows takes and sees nothing; others see their own, root and the agent's user all.
func TestWhoMay(t *testing.T) {
	t.Parallel()
	if err := new(Agent).mayTake(peer{}, "a"); err == nil {
		t.Error("an unknown user takes a lock")
	}
	self := uint32(os.Getuid())
	for p, want := range map[peer]bool{
		{uid: 7}: false, {known: true, uid: 7}: true, {known: true, uid: 8}: self == 8, {known: true, uid: self}: true, {known: true}: true,
	} {
		if p.maySee(7) != want {
			t.Errorf("%+v sees the locks of user 7: %v", p, !want)
		}
	}
	if (policy{"": {"a"}}).allows("7", "", "a") {
		t.Error(`"" is every user without a name`)
	}
}

// hold is the n-th lock of a client.
func hold(n int) agentlink.Hold {
	key := fmt.Sprint("job", n)
	return agentlink.Hold{
		Lease:   agentlink.Lease{Key: key, Owner: fmt.Sprintf("x:0123456789abcdef-%d", n), Milliseconds: 30_000},
		Release: "release", Counter: "redisson_lock_token:{" + key + "}",
	}
}

// TestManyLocksAreFreedTogether: the locks of a process that has died don't take a round trip each, and another process's don't wait until all of them
// are free.
func TestManyLocksAreFreedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		cable := redistest.NewProxy(t, srv.Addr())
		a, err := New(srv.Client(t, func(o *redis.Options) { o.Addr = cable.Addr() }), Config{})
		must(t, err)
		defer func() { _ = a.Close(context.Background()) }()
		cable.SetRule(redistest.When(redistest.Down, redistest.Delay(50*time.Millisecond)))
		u := &user{usage: &a.usage, id: 7}
		die := func(first, locks int) {
			h := &holds{agent: a, visitor: &visitor{user: u}, held: map[string]*agentlink.Hold{}}
			for i := range locks {
				h.note(&agentlink.Request{Held: []agentlink.Hold{hold(first + i)}})
			}
			h.died()
		}
		began := time.Now()
		die(0, 2000)
		die(2000, 1)
		for u.bytes.Load() > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("2,001 locks took %v at 50 ms", took)
		}
	})
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
		one := hold(1)
		a.usage.limits.bytes = int64(3 * one.Bytes())
		u := &user{usage: &a.usage, id: 7}
		hs := &holds{agent: a, visitor: &visitor{user: u}, held: map[string]*agentlink.Hold{}}
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
		a := &Agent{gaveUp: make(chan struct{})}
		a.keep(t.Context(), &HeldLock{lease: l}, func(line any) error {
			said++
			if d, ok := line.(deadlineLine); ok {
				if left := time.Until(told); left < 5*time.Second {
					t.Errorf("told %v before the end of what was told before", left)
				}
				told = d.Deadline
			} else {
				told = line.(heldLine).Deadline //nolint:forcetypeassert // there is no loss
			}
			if said == 4 { // this line may have been read
				return io.ErrShortWrite
			}
			return nil
		})
		if now := time.Now().Truncate(time.Millisecond); said != 4 || now.Before(told) || now.After(told.Add(20*time.Second)) || l.Err() == nil {
			t.Errorf("released at %v after %d lines, told %v, %v", now, said, told, l.Err())
		}
	})
}

package lock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/agent"
	"github.com/lockdog/lockdog/telemetry"
)

// Before children_test.go looks whether this process is one.
var _ = func() bool {
	children["holder"], children["agent"] = childHolder, childAgent
	return true
}()

// crashLease is so long that only the agent frees a lock before the test ends.
const crashLease = time.Hour

// crashLocks has one lock of each kind that has a lease, and those of a Multi.
func crashLocks(c *lock.Client) map[string]lock.Locker {
	return map[string]lock.Locker{
		"mutex": c.Mutex("mutex"), "fair": c.FairMutex("fair"), "write": c.RWMutex("write"), "read": c.RWMutex("read").RLocker(),
		"permit": c.Semaphore("permit"), "multi": c.Multi([]string{"{multi}:a", "{multi}:b"}),
	}
}

const crashGrants = 7

// childHolder holds crashLocks, and does what it is told. The agent's socket is prefix.
func childHolder(addr, socket string, say func(string, ...any)) error {
	_, rdb, c, err := processClient(addr, "", lock.WithLease(crashLease), lock.WithAgent(socket))
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	defer closeSoon(c)
	if _, err := c.Semaphore("permit").TrySetPermits(context.Background(), 1); err != nil {
		return err
	}
	for name, m := range crashLocks(c) {
		if _, err := m.Lock(context.Background()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	say("held")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		cat, err := exec.LookPath("cat") // ends with the test, which closes its stdin
		if err != nil {
			return err
		}
		switch in.Text() {
		case "exec":
			return syscall.Exec(cat, []string{cat}, nil)
		case "fork":
			for _, fd := range agentSockets() {
				if _, err := syscall.Dup(fd); err != nil { // children inherit the copy
					return err
				}
			}
			cmd := exec.Command(cat)
			cmd.Stdin = os.Stdin
			if err := cmd.Start(); err != nil {
				return err
			}
			say("forked")
		}
	}
	return nil
}

// agentSockets returns the Unix sockets of this process.
func agentSockets() (fds []int) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_UNIX {
			fds = append(fds, fd)
		}
	}
	return fds
}

// childAgent is an agent, until stdin ends. The path of its socket is prefix.
func childAgent(addr, socket string, say func(string, ...any)) error {
	_, rdb, c, err := processClient(addr, "")
	if err != nil {
		return err
	}
	closeSoon(c)
	defer func() { _ = rdb.Close() }()
	a, err := agent.New(rdb, agent.Config{})
	if err != nil {
		return err
	}
	l, err := agent.Listen(socket, 0o600)
	if err != nil {
		return err
	}
	go func() { _ = a.Serve(l) }()
	say("serving as process %d", os.Getpid())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		say("held %d, freed %d", a.Status().Held, a.Status().Freed)
	}
	return a.Close(context.Background())
}

// crashRig is an agent and a process that holds locks.
type crashRig struct {
	srv    *redistest.Server
	socket string
	tel    *scope
	agent  *agent.Agent
	child  *child
	c      *lock.Client // of others
}

func startCrashRig(t *testing.T) *crashRig {
	t.Helper()
	srv := redistest.Start(t)
	r := &crashRig{srv: srv, socket: filepath.Join(t.TempDir(), "s"), tel: newScope(t)}
	r.agent = r.startAgent(t)
	r.c = newScope(t).open(t, srv.Client(t), lock.WithLease(time.Minute))
	r.child = startChild(t, "holder", srv.Addr(), r.socket)
	r.child.expect(t, "held")
	r.awaitHeld(t, r.agent, crashGrants)
	return r
}

func (r *crashRig) startAgent(t *testing.T) *agent.Agent {
	t.Helper()
	a, err := agent.New(r.srv.Client(t), agent.Config{TracerProvider: r.tel.tracer, MeterProvider: r.tel.meter, Logger: r.tel.log})
	must(t, "agent.New", err)
	l, err := agent.Listen(r.socket, 0o600)
	must(t, "agent.Listen", err)
	serveAgent(t, a, l)
	return a
}

func (r *crashRig) awaitHeld(t *testing.T, a *agent.Agent, want int64) {
	t.Helper()
	eventually(t, patience, func() bool { return a.Status().Held == want })
}

// rivals has what can't be held beside crashLocks, by their names.
func (r *crashRig) rivals() map[string]lock.Locker {
	all := crashLocks(r.c)
	all["read"] = r.c.RWMutex("read")
	return all
}

// mustBeHeld checks that others don't get the locks.
func (r *crashRig) mustBeHeld(t *testing.T) {
	t.Helper()
	for name, m := range r.rivals() {
		if l, err := m.TryLock(t.Context()); err == nil {
			t.Errorf("%s was free", name)
			free(t, l)
		}
	}
}

// waiters begins to wait for all locks.
func (r *crashRig) waiters(t *testing.T) map[string]<-chan taken {
	t.Helper()
	all := make(map[string]<-chan taken)
	for name, m := range r.rivals() {
		all[name] = begin(t.Context(), m)
	}
	waiting(t, r.c, len(all))
	return all
}

// mustBeFreed checks that the waiters get the locks.
func mustBeFreed(t *testing.T, waiters map[string]<-chan taken) {
	t.Helper()
	for name, w := range waiters {
		t.Log(name)
		free(t, granted(t, w))
	}
}

// TestCrashFreesLocks: the locks of a process that is killed are free at once, of each kind, and whoever waits is woken. That is counted, logged and
// traced. Whether the process has been stopped, or has forked another that has its socket, makes no difference.
func TestCrashFreesLocks(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "stop", "fork"} {
		t.Run(before, func(t *testing.T) {
			t.Parallel()
			r := startCrashRig(t)
			waiters := r.waiters(t)
			switch before {
			case "stop":
				r.child.stop(t)
				time.Sleep(time.Second)
			case "fork":
				r.child.tell(t, before)
				r.child.expect(t, "forked")
			}
			r.mustBeHeld(t)
			r.child.kill(t)
			mustBeFreed(t, waiters)
			if s := r.agent.Status(); s.Held != 0 || s.Freed != crashGrants {
				t.Errorf("the agent: %+v", s)
			}
			if n := r.tel.sum(t, telemetry.MetricReleases, "lockdog.outcome=crashed"); n != crashGrants {
				t.Errorf("%v releases after a crash", n)
			}
			logged := r.tel.records(t, telemetry.LogCrashed)
			if len(logged) != crashGrants || logged[0]["pid"] != float64(r.child.process.PID()) {
				t.Errorf("process %d, logged: %v", r.child.process.PID(), logged)
			}
			spans := 0
			for _, s := range r.tel.spans.GetSpans() {
				if slices.Contains(s.Attributes, telemetry.KeyOutcome.String("crashed")) && s.Parent.IsRemote() {
					spans++
				}
			}
			if spans != crashGrants {
				t.Errorf("%d spans of releases after a crash, in the traces of the locks", spans)
			}
		})
	}
}

// BenchmarkCrash measures how long after the SIGKILL of a holder another process's Lock has the lock.
func BenchmarkCrash(b *testing.B) {
	srv, socket := redistest.Start(b), filepath.Join(b.TempDir(), "s")
	a, err := agent.New(srv.Client(b), agent.Config{})
	must(b, "agent.New", err)
	l, err := agent.Listen(socket, 0o600)
	must(b, "agent.Listen", err)
	serveAgent(b, a, l)
	c, err := lock.New(srv.Client(b))
	must(b, "lock.New", err)
	defer closeSoon(c)
	var took []time.Duration
	for range b.N {
		holder := startChild(b, "holder", srv.Addr(), socket)
		if said := <-holder.lines; said != "held" {
			b.Fatal(said)
		}
		w := begin(b.Context(), c.Mutex("mutex"))
		for a.Status().Held != crashGrants || len(c.Leases()) == 0 {
			time.Sleep(time.Millisecond)
		}
		killed := time.Now()
		must(b, "kill", holder.process.Kill())
		next := <-w
		took = append(took, time.Since(killed))
		must(b, "Lock", next.err)
		must(b, "Release", next.Release(b.Context()))
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-us")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-us")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "worst-us")
}

// TestCrashInContainers is TestCrashFreesLocks for an agent and a holder that don't see each other's process numbers.
func TestCrashInContainers(t *testing.T) {
	t.Parallel()
	srv, socket := redistest.Start(t), filepath.Join(t.TempDir(), "s")
	inContainer := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		inContainer.Cloneflags |= syscall.CLONE_NEWUSER
		inContainer.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	}
	a := startChildWith(t, inContainer, "agent", srv.Addr(), socket)
	a.expect(t, "serving as process 1")
	holder := startChildWith(t, inContainer, "holder", srv.Addr(), socket)
	holder.expect(t, "held")
	c := newScope(t).open(t, srv.Client(t), lock.WithLease(time.Minute))
	r := &crashRig{srv: srv, c: c}
	waiters := r.waiters(t)
	for said := ""; said != fmt.Sprintf("held %d, freed 0", crashGrants); said = <-a.lines {
		a.tell(t, "status")
	}
	holder.kill(t)
	mustBeFreed(t, waiters)
}

// TestNoCrash: whatever becomes of the connection, the agent frees no lock of a process that lives, has replaced itself, or died while there was no
// agent; and it is told only of locks that it may free.
func TestNoCrash(t *testing.T) {
	t.Parallel()
	t.Run("exec", func(t *testing.T) {
		t.Parallel()
		r := startCrashRig(t)
		r.child.tell(t, "exec")
		r.awaitHeld(t, r.agent, 0)
		time.Sleep(2 * time.Second) // longer than the agent looks for a death after a connection has ended
		r.mustBeHeld(t)
		if s := r.agent.Status(); s.Freed != 0 {
			t.Errorf("the agent: %+v", s)
		}
	})
	t.Run("the agent is restarted", func(t *testing.T) {
		t.Parallel()
		r := startCrashRig(t)
		must(t, "closing the agent", r.agent.Close(t.Context()))
		r.mustBeHeld(t)
		again := r.startAgent(t)
		r.awaitHeld(t, again, crashGrants)
		r.mustBeHeld(t)
		waiters := r.waiters(t)
		r.child.kill(t)
		mustBeFreed(t, waiters)
	})
	t.Run("a crash without an agent", func(t *testing.T) {
		t.Parallel()
		r := startCrashRig(t)
		must(t, "closing the agent", r.agent.Close(t.Context()))
		r.child.kill(t)
		again := r.startAgent(t)
		time.Sleep(time.Second)
		r.mustBeHeld(t)
		if s := again.Status(); s.Freed != 0 {
			t.Errorf("the agent: %+v", s)
		}
	})
	t.Run("a good end", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		r := &crashRig{srv: srv, socket: filepath.Join(t.TempDir(), "s"), tel: newScope(t)}
		a := r.startAgent(t)
		c := newScope(t).open(t, srv.Client(t), lock.WithAgent(r.socket))
		kept := try(t, c.Mutex("fixed", lock.WithFixedLease(time.Minute)))
		try(t, c.Mutex("min hold", lock.WithMinHold(time.Minute)))
		try(t, c.Mutex("delayed", lock.WithTakeoverDelay(time.Minute)))
		l := try(t, c.Mutex("job"))
		r.awaitHeld(t, a, 1)
		free(t, l)
		r.awaitHeld(t, a, 0)
		free(t, kept)
	})
}

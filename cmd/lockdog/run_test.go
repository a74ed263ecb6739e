//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/propagation"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// hold takes a lock by the library, until the test ends.
func hold(t *testing.T, rdb redis.UniversalClient, name string, opts ...lock.LockOption) *lock.Lease {
	t.Helper()
	c, err := lock.New(rdb, lock.WithClientID("holder"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Mutex(name, opts...).TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		_ = l.Release(ctx) // it may have been taken away
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

// until waits for what happens at some time.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * patience); !happened(); {
		if time.Now().After(deadline) {
			t.Fatalf("it didn't happen: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// starting is the program, started.
type starting struct {
	*exec.Cmd
	stdout, stderr *bytes.Buffer
	done           chan struct{}
}

// start starts the program. What is left of it ends with the test.
func start(t *testing.T, address string, args ...string) *starting {
	t.Helper()
	cmd, stdout, stderr := program(t.Context(), t, address, nil, args...)
	s := begin(t, cmd)
	s.stdout, s.stderr = stdout, stderr
	return s
}

// begin starts what program has returned, or a command that becomes that.
func begin(t *testing.T, cmd *exec.Cmd) *starting {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &starting{cmd, &bytes.Buffer{}, &bytes.Buffer{}, make(chan struct{})}
	go func() {
		defer close(s.done)
		_ = cmd.Wait() // its code is in ProcessState
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		<-s.done
	})
	return s
}

// end waits for it.
func (s *starting) end(t *testing.T) result {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(2 * patience):
		t.Fatal("the program didn't end")
	}
	return result{codeOf(s.ProcessState), s.stdout.String(), s.stderr.String()}
}

// makes waits until the command has made a file in its directory.
func (s *starting) makes(t *testing.T, file string) {
	t.Helper()
	until(t, "the command makes "+file, func() bool { return exists(filepath.Join(s.Dir, file)) })
}

// over lets a command go on that untilOver keeps.
func (s *starting) over(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir, "over"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

const untilOver = "until [ -e over ]; do sleep 0.05; done"

// startRun has the program run a shell's command, and waits until that runs. flags begin with the name of the lock.
func startRun(t *testing.T, address, flags, script string) *starting {
	t.Helper()
	s := start(t, address, append(strings.Fields("run "+flags+" -- sh -c"), "touch runs; "+script)...)
	s.makes(t, "runs")
	return s
}

// waits waits until somebody waits for a lock.
func waits(t *testing.T, rdb redis.UniversalClient, name string) {
	t.Helper()
	until(t, "it waits", func() bool { return rdb.ZCard(t.Context(), "lockdog_wait:{"+name+"}").Val() == 1 })
}

func wantFree(t *testing.T, server *redistest.Server, name string) {
	t.Helper()
	if server.Client(t).Exists(t.Context(), name).Val() != 0 {
		t.Error("the lock isn't free")
	}
}

func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	hold(t, server.Client(t), "held")
	notExecutable := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notExecutable, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		args   string
		code   int
		stderr string
	}{
		{"free -- true", 0, ""},
		{"free -- sh -c exit${IFS}3", 3, ""},
		{"free -- sh -c kill${IFS}-TERM${IFS}$$", 143, ""},
		{"free -- sh -c kill${IFS}-KILL${IFS}$$", 137, ""},
		{"free -- sh -c kill${IFS}-PIPE${IFS}$$", 141, ""},
		{"free -- no-such-command", 127, "no-such-command"},
		{"free -- " + notExecutable, 126, "permission denied"},
		{"held -- true", 75, "held"},
		{"held --wait 1s -- true", 75, "held"},
		{"held --held-code 0 -- true", 0, "held"},
		{"free --lease 1ms -- true", 64, "100ms"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(strings.Replace(test.args, "free ", fmt.Sprintf("free%d ", i), 1))
			lockdog(t, server.Addr(), nil, append([]string{"run"}, args...)...).want(t, test.code, "", test.stderr)
		})
	}
}

// A Redis that is down is waited for, as a lock is.
func TestRunWaitsForRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill(t)
	for wait, said := range map[string]int{"0": 0, "1s": 1} { // said once, whatever the number of tries
		r := lockdog(t, server.Addr(), nil, "run", "job", "--wait", wait, "--", "echo", "ran")
		r.want(t, exitUnavailable, "", "connection refused")
		if n := strings.Count(r.stderr, "waiting for it"); n != said || r.stdout != "" {
			t.Errorf("--wait %s: it said %d times that it waits, and ran %q", wait, n, r.stdout)
		}
	}
	cmd, stdout, _ := program(t.Context(), t, server.Addr(), nil, "run", "job", "--wait", "1h", "--", "echo", "ran")
	log := filepath.Join(cmd.Dir, "stderr")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	cmd.Stderr = file
	s := begin(t, cmd)
	until(t, "it waits", func() bool {
		said, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(said), "waiting for it")
	})
	server.Restart(t, redistest.LoseData)
	s.stdout = stdout
	s.end(t).want(t, 0, "ran", "")
}

// If Redis is gone when the command has ended, the program ends, too, however long the lease is.
func TestRunEndsWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := startRun(t, server.Addr(), "job --lease 1h", untilOver+"; exit 5")
	server.Kill(t)
	s.over(t)
	s.end(t).want(t, 5, "", "the release isn't confirmed, so the lock is free in 1h0m5s at the latest")
}

// The command is told its lock and its trace, and gets the program's standard files and arguments as they are.
func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var last int64
	for range 2 {
		r := lockdog(t, server.Addr(), []string{"TRACEPARENT=00-" + traceID + "-b7ad6b7169203331-01"},
			"run", "job: 1", "--", "sh", "-c", `echo "$LOCKDOG_NAME/$TRACEPARENT/$1/${LOCKDOG_GUARD-no guard}/$LOCKDOG_TOKEN"`, "sh", "--json")
		r.want(t, 0, "job: 1/00-"+traceID, "")
		words := strings.Split(strings.TrimSpace(r.stdout), "/")
		token, err := strconv.ParseInt(words[len(words)-1], 10, 64)
		if err != nil || token <= last || words[2] != "--json" || words[3] != "no guard" {
			t.Errorf("token %d after %d, %v; argument %q; %s", token, last, err, words[2], words[3])
		}
		last = token
	}
	cmd, stdout, _ := program(t.Context(), t, server.Addr(), nil, "run", "job", "--", "cat")
	cmd.Stdin = strings.NewReader("through")
	if err := cmd.Run(); err != nil || stdout.String() != "through" {
		t.Errorf("%q, %v", stdout, err)
	}
	if keys := server.Client(t).Keys(t.Context(), "job*").Val(); len(keys) != 0 {
		t.Errorf("left in Redis: %q", keys)
	}
}

// What is wrong about telemetry keeps no command from running.
func TestRunBadTelemetry(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const parent = "00-" + traceID + "-b7ad6b7169203331-01"
	for _, env := range []string{"OTEL_TRACES_EXPORTER=console", "OTEL_EXPORTER_OTLP_PROTOCOL=avro"} {
		r := lockdog(t, server.Addr(), []string{env, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "TRACEPARENT=" + parent}, "run", "job", "--", "sh", "-c", "echo $TRACEPARENT")
		r.want(t, 0, parent, "so there is no telemetry")
	}
}

func TestRunSemaphore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const flags = "workers --semaphore 2"
	one, two := startRun(t, server.Addr(), flags, untilOver), startRun(t, server.Addr(), flags, untilOver)
	lockdog(t, server.Addr(), nil, "run", "workers", "--semaphore", "2", "--", "true").want(t, exitHeld, "", "")
	for _, s := range []*starting{one, two} {
		s.over(t)
		s.end(t).want(t, 0, "", "")
	}
}

// A signal goes to the command, which may wind down in its own time with the lock.
func TestRunPassesSignals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := startRun(t, server.Addr(), "job", "trap 'touch winding; "+untilOver+"; exit 5' TERM; touch ready; while :; do sleep 0.05; done")
	s.makes(t, "ready")
	send(t, s, syscall.SIGTERM)
	s.makes(t, "winding")
	if server.Client(t).Exists(t.Context(), "job").Val() != 1 {
		t.Error("the lock is free while the command winds down")
	}
	s.over(t)
	s.end(t).want(t, 5, "", "")
	wantFree(t, server, "job")
}

// A lock that another process passes on comes with a short lease, until its first renewal. That is no reason to end the command.
func TestRunAfterHandOver(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	for _, grace := range []string{"0s", "10s"} { // by default, and the longest
		t.Run(grace, func(t *testing.T) {
			t.Parallel()
			name := "job" + grace
			held := hold(t, rdb, name)
			s := start(t, server.Addr(), "run", name, "--wait", "forever", "--grace", grace, "--takeover-delay", "0", "--",
				"sh", "-c", "touch runs; "+untilOver+"; exit 5")
			waits(t, rdb, name)
			if err := held.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.makes(t, "runs")
			until(t, "the lease is renewed", func() bool {
				left := rdb.PTTL(t.Context(), name).Val()
				return left > 20*time.Second || left < 0 // ended meanwhile
			})
			s.over(t)
			s.end(t).want(t, 5, "", "")
		})
	}
}

// A signal that comes while it waits ends it.
func TestRunSignaledWhileItWaits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	hold(t, rdb, "job")
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		s := start(t, server.Addr(), "run", "job", "--wait", "forever", "--", "true")
		waits(t, rdb, "job")
		send(t, s, sig)
		s.end(t).want(t, code, "", sig.String())
		rdb.Del(t.Context(), "lockdog_wait:{job}") // the next release would
	}
}

// Where something hangs after the first signal, the second one ends it.
func TestRunSignaledTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	hold(t, rdb, "job")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a collector that never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	_ = silent.(*net.TCPListener).SetDeadline(time.Now().Add(2 * patience)) // never fails
	env := []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + silent.Addr().String(), "OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none",
		"OTEL_BSP_SCHEDULE_DELAY=3600000", // it gets spans at the program's end, not before
	}
	cmd, _, _ := program(t.Context(), t, server.Addr(), env, "run", "job", "--wait", "forever", "--", "true")
	s := begin(t, cmd)
	waits(t, rdb, "job")
	send(t, s, syscall.SIGINT)
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	send(t, s, syscall.SIGINT)
	s.end(t)
	if status := s.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v, not by the second signal", s.ProcessState)
	}
}

// granted is a lock that run has just got.
func granted(t *testing.T, address string, f runFlags) *running {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { _ = rdb.Close() })
	return &running{app: &app{stderr: t.Output()}, flags: f, lease: hold(t, rdb, t.Name(), lock.WithLease(f.lease)), propagator: propagation.TraceContext{}, stat: os.Stat}
}

// What is left of a command that has failed keeps the lock, and doesn't hide the failure.
func TestRunLeavesWhatCannotBeKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := granted(t, server.Addr(), runFlags{lease: time.Minute})
	err := r.finish(t.Context(), nil, 3, false)
	if code := exitCode(t.Context(), err); code != 3 {
		t.Errorf("exit code %d, %v", code, err)
	}
	if server.Client(t).Exists(t.Context(), t.Name()).Val() != 1 {
		t.Error("the lock is free")
	}
}

// A signal that comes when the lock is there, but no command, ends it without the command. Its ctx may not have ended.
func TestRunSignaledBeforeTheCommand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := granted(t, server.Addr(), runFlags{lease: time.Minute})
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	err := r.run(t.Context(), signals, []string{"no-such-command"}) // one that there is might end by the signal before it does anything
	if code := exitCode(t.Context(), err); code != 143 {
		t.Errorf("exit code %d, %v", code, err)
	}
	wantFree(t, server, t.Name())
}

// A heartbeat file on a file system that hangs keeps neither signals from the command nor the lease's deadline from its guard.
func TestRunHeartbeatHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := granted(t, server.Addr(), runFlags{lease: 9 * time.Second, grace: 3 * time.Second, heartbeatFile: "file", heartbeat: time.Minute})
	over := make(chan struct{})
	defer close(over)
	r.stat = func(string) (os.FileInfo, error) {
		select {
		case <-over:
		case <-time.After(patience):
		}
		return nil, os.ErrNotExist
	}
	signals := make(chan os.Signal, 1)
	defer signal.Stop(signals)
	time.AfterFunc(r.flags.lease*3/2, func() { signals <- syscall.SIGUSR1 })
	err := r.run(t.Context(), signals, []string{"sh", "-c", "trap 'exit 5' USR1; while :; do sleep 0.05; done"})
	if code := exitCode(t.Context(), err); code != 5 {
		t.Errorf("exit code %d, %v", code, err)
	}
}

// A signal that was ignored when it started, as by shells for what a script runs in the background, is nothing to the command either.
func TestRunIgnoredSignal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		cmd, _, _ := program(t.Context(), t, server.Addr(), nil)
		number := strconv.Itoa(int(sig))
		ignoring := exec.CommandContext(t.Context(), "sh", "-c", `trap "" `+number+`; exec "$@"`, "sh", cmd.Path, "run", "job", "--",
			"sh", "-c", "trap 'kill -"+number+" $$; exit 5' USR1; touch ready; while :; do sleep 0.05; done")
		ignoring.Env, ignoring.Dir = cmd.Env, cmd.Dir
		s := begin(t, ignoring)
		s.makes(t, "ready")
		send(t, s, sig)
		send(t, s, syscall.SIGUSR1) // is passed on, later than what has a smaller number
		if r := s.end(t); r.code != 5 {
			t.Errorf("%v: exit code %d", sig, r.code)
		}
	}
}

// Nobody reads stderr: what is to be said there is lost, and nothing else.
func TestRunWithoutReaderOfStderr(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		fault func(t *testing.T, s *starting, server *redistest.Server, p *redistest.Proxy)
		code  int
	}{
		{"the lock is lost", func(t *testing.T, _ *starting, server *redistest.Server, _ *redistest.Proxy) {
			server.Client(t).Del(t.Context(), "job")
		}, exitLost},
		{"renewals fail", func(t *testing.T, s *starting, _ *redistest.Server, p *redistest.Proxy) {
			var failed atomic.Int32
			isRenewal := redistest.Contains("run('hexists', key, owner)") // in renew.lua
			p.SetRule(redistest.When(redistest.Up, redistest.Cut, func(c redistest.Chunk) bool { return isRenewal(c) && failed.Add(1) > 0 }))
			until(t, "a second attempt after one that failed", func() bool { return failed.Load() > 1 })
			p.SetRule(nil)
			send(t, s, syscall.SIGUSR1)
		}, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := redistest.NewProxy(t, server.Addr())
			cmd, _, _ := program(t.Context(), t, p.Addr(), nil, "run", "job", "--lease", "15s", "--", "sh", "-c",
				"exec 2> /dev/null; trap 'exit 5' USR1; touch ready; while :; do sleep 0.05; done")
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = write
			s := begin(t, cmd)
			_, _ = read.Close(), write.Close()
			s.makes(t, "ready")
			test.fault(t, s, server, p)
			if r := s.end(t); r.code != test.code {
				t.Errorf("%v, want code %d", s.ProcessState, test.code)
			}
		})
	}
}

// Nobody reads stderr, and it is full: the command ends all the same when the lock is lost.
func TestRunWithFullStderr(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cmd, _, _ := program(t.Context(), t, server.Addr(), nil, "run", "job", "--lease", "1h", "--", "sh", "-c",
		"exec 2> /dev/null; trap 'touch asked; exit 5' TERM; touch ready; while :; do sleep 0.05; done")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	if err := write.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := write.Write(make([]byte, 10<<20)); err == nil {
		t.Fatalf("the pipe took %d bytes", n)
	}
	cmd.Stderr = write
	s := begin(t, cmd)
	_ = write.Close()
	s.makes(t, "ready")
	server.Client(t).Del(t.Context(), "job")
	s.makes(t, "asked")
	_ = read.Close()
	if r := s.end(t); r.code != exitLost {
		t.Errorf("%v", s.ProcessState)
	}
}

// startWork starts a command that fails with code 99 if another of its kind runs: the kernel gives a file's lock back when all that have it are dead.
func startWork(t *testing.T, address, dir, flags, script string) *starting {
	t.Helper()
	return start(t, address, work(dir, flags, script)...)
}

func work(dir, flags, script string) []string {
	return append(strings.Fields("run "+flags+" -- flock -n -E 99 "+dir+"/one sh -c"), "touch runs; "+script)
}

// startSecond starts a second one, which waits for the first one's lock.
func startSecond(t *testing.T, address, dir string) *starting {
	t.Helper()
	return startWork(t, address, dir, "job --lease 1h --wait forever", "echo second")
}

// scattered is a command that ignores what asks it to end, and has processes that do, too: in the background, in a session of its own, and in a process group
// of its own.
const scattered = "trap '' TERM; sleep 600 & setsid sleep 600 & (setsid sh -c 'sleep 600 & sleep 600' &); timeout 600 sh -c 'sleep 600; true'"

const atATerminal = ", at a terminal"

// Whatever ends or stops the program, the command has ended before another can have the lock.
func TestRunNeverTwoAtWork(t *testing.T) {
	t.Parallel()
	killed := func(t *testing.T, s *starting, _ *redistest.Server) { send(t, s, syscall.SIGKILL) }
	pause := func(t *testing.T, s *starting, server *redistest.Server) {
		server.Pause(t)
		s.end(t) // it needs no Redis for that
		server.Resume(t)
	}
	noRenewal := func(t *testing.T, s *starting) { s.end(t).want(t, exitLost, "", "no renewal") }
	for _, test := range []struct {
		name    string
		command string
		fault   func(t *testing.T, s *starting, server *redistest.Server)
		after   func(t *testing.T, s *starting) // what becomes of it
	}{
		{"killed", scattered, killed, func(t *testing.T, s *starting) { s.end(t) }},
		{"killed" + atATerminal, scattered, killed, func(t *testing.T, s *starting) { s.end(t) }},
		{
			"stopped", scattered, func(t *testing.T, s *starting, _ *redistest.Server) { send(t, s, syscall.SIGSTOP) },
			func(t *testing.T, s *starting) {
				send(t, s, syscall.SIGCONT)
				s.end(t).want(t, exitLost, "", "lost")
			},
		},
		{
			"stopped by the command, as its first act", "read a b c guard e < /proc/$PPID/stat; read a b c lockdog e < /proc/$guard/stat; kill -STOP $lockdog; " + scattered,
			func(*testing.T, *starting, *redistest.Server) {},
			func(t *testing.T, s *starting) {
				send(t, s, syscall.SIGCONT)
				s.end(t).want(t, exitLost, "", "lost")
			},
		},
		{"Redis stands still", scattered, pause, noRenewal},
		{"Redis stands still" + atATerminal, scattered, pause, noRenewal},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			dir := t.TempDir()
			args := work(dir, "job --lease 15s", test.command)
			terminal := strings.HasSuffix(test.name, atATerminal)
			if terminal {
				args = slices.Insert(args, slices.Index(args, "--")+1, "nohup") // the kernel sends SIGHUP when lockdog, the session's leader, dies
			}
			cmd, stdout, stderr := program(t.Context(), t, server.Addr(), nil, args...)
			if terminal {
				giveTerminal(t, cmd)
			}
			first := begin(t, cmd)
			first.stdout, first.stderr = stdout, stderr
			first.makes(t, "runs")
			second := startSecond(t, server.Addr(), dir)
			test.fault(t, first, server)
			second.end(t).want(t, 0, "second", "")
			test.after(t, first)
		})
	}
}

func send(t *testing.T, s *starting, sig syscall.Signal) {
	t.Helper()
	if err := s.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// A lock that somebody takes away or deletes ends the command some milliseconds later, and not only at the next renewal.
func TestRunLosesItsLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, lose := range map[string]func(t *testing.T, name string){
		"unlock": func(t *testing.T, name string) {
			lockdog(t, server.Addr(), nil, "unlock", name, "--force", "--yes").want(t, 0, "was taken away from", "")
		},
		"DEL": func(t *testing.T, name string) {
			if err := server.Client(t).Del(t.Context(), name).Err(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startRun(t, server.Addr(), name+" --lease 1h", "sleep 600")
			lose(t, name)
			s.end(t).want(t, exitLost, "", "the lock is lost")
		})
	}
}

// A command that may not go on, or doesn't touch its file, is ended.
func TestRunOvertime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for flags, stderr := range map[string]string{
		"held --max-hold 5s": "may not go on", "silent --heartbeat 5s --heartbeat-file beat": "eartbeat",
	} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields("run " + flags + " --lease 15s -- sleep 600")
			lockdog(t, server.Addr(), nil, args...).want(t, exitOvertime, "", stderr)
		})
	}
}

// A command that touches its file goes on.
func TestRunHeartbeat(t *testing.T) {
	t.Parallel()
	const script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do touch beat; sleep 0.5; done"
	lockdog(t, redistest.Start(t).Addr(), nil, "run", "job", "--lease", "15s", "--heartbeat", "5s", "--heartbeat-file", "beat",
		"--", "sh", "-c", script).want(t, 0, "", "")
}

// A job that all servers start at about the same time runs once.
func TestRunMinHold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lockdog(t, server.Addr(), nil, "run", "job", "--min-hold", "1h", "--", "echo", "ran").want(t, 0, "ran", "")
	lockdog(t, server.Addr(), nil, "run", "job", "--min-hold", "1h", "--held-code", "0", "--", "echo", "again").want(t, 0, "", "held for another")
	lockdog(t, server.Addr(), nil, "who", "job").want(t, 0, "stays taken for another", "")
}

// A failover that loses nothing doesn't end the command, and gives the lock to nobody else.
func TestRunSurvivesFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	dir := t.TempDir()
	address := strings.Join(s.Universal().Addrs, ",")
	first := startWork(t, address, dir, "job --lease 15s", untilOver+"; echo first")
	first.makes(t, "runs")
	if n, err := s.Primary(t).Client(t).Wait(t.Context(), 1, patience).Result(); n != 1 { // otherwise the failover may lose the lock
		t.Fatalf("%d replicas have it: %v", n, err)
	}
	s.Failover(t)
	second := startSecond(t, address, dir)
	primary, left := s.Primary(t).Client(t), time.Hour
	until(t, "the new primary has a renewal", func() bool {
		before := left
		left = primary.PTTL(t.Context(), "job").Val()
		return left > before
	})
	first.over(t)
	first.end(t).want(t, 0, "first", "")
	second.end(t).want(t, 0, "second", "")
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
)

// guardOf is the id of the process that sees to it that a command ends, 0 if there is none.
func guardOf(t *testing.T, s *starting) int {
	t.Helper()
	children, _ := exec.CommandContext(t.Context(), "pgrep", "-P", strconv.Itoa(s.Process.Pid)).Output() // none is an error
	for pid := range strings.FieldsSeq(string(children)) {
		if env, err := os.ReadFile("/proc/" + pid + "/environ"); err == nil && strings.Contains(string(env), "LOCKDOG_GUARD=") {
			id, _ := strconv.Atoi(pid)
			return id
		}
	}
	return 0
}

// killGuard kills the process with that id. Without one it would be our own group.
func killGuard(t *testing.T, guard int) {
	t.Helper()
	if guard == 0 {
		t.Fatal("there is no guard")
	}
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// A guard that is killed takes the command with it, and lockdog what that has started.
func TestRunGuardKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	first := startWork(t, server.Addr(), dir, "job --lease 1h", scattered)
	first.makes(t, "runs")
	second := startSecond(t, server.Addr(), dir)
	killGuard(t, guardOf(t, first))
	first.end(t).want(t, 137, "", "guards the command was killed")
	second.end(t).want(t, 0, "second", "")
}

// A stopped command gets the signal that ends lockdog's run, too: it is continued, and so is what it has started.
func TestRunSignalsAStoppedCommand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const stops = "echo $$ > pid; kill -STOP $$; sleep 600"
	for what, script := range map[string]string{"itself": stops, "what it waits for": "trap 'wait; exit 143' TERM; sh -c '" + stops + "' & wait"} {
		t.Run(what, func(t *testing.T) {
			s := startRun(t, server.Addr(), "job", script)
			stopped := func() bool {
				pid, _ := os.ReadFile(s.Dir + "/pid")
				stat, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
				return strings.Contains(string(stat), ") T ")
			}
			until(t, "it is stopped", stopped)
			send(t, s, syscall.SIGTERM)
			s.end(t).want(t, 143, "", "")
			wantFree(t, server, "job")
			until(t, "it is continued", func() bool { return !stopped() })
		})
	}
}

// While it waits for the lock, an upgrade may remove lockdog's file.
func TestRunWithoutItsFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	held := hold(t, rdb, "job")
	cmd, stdout, stderr := program(t.Context(), t, server.Addr(), nil, "run", "job", "--wait", "forever", "--", "echo", "works")
	self := cmd.Path
	cmd.Path = filepath.Join(t.TempDir(), "lockdog")
	// Not written here: a process that is being started would have the file open for writing until its exec, and a file
	// that is open for writing can't be executed.
	if out, err := exec.Command("cp", self, cmd.Path).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	s := begin(t, cmd)
	s.stdout, s.stderr = stdout, stderr
	waits(t, rdb, "job")
	if err := os.Remove(cmd.Path); err != nil {
		t.Fatal(err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.end(t).want(t, 0, "works", "")
}

// If lockdog and its guard are killed together, the kernel kills the command. It may be killed before its first act, too.
func TestRunBothKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const alone = "run job --lease 1h -- flock --no-fork -n -E 99 one sh -c"
	first := start(t, server.Addr(), append(strings.Fields(alone), "trap '' TERM; touch runs; exec sleep 600")...)
	first.makes(t, "runs")
	guard := guardOf(t, first)
	send(t, first, syscall.SIGSTOP) // so that it can do nothing about the guard's end
	killGuard(t, guard)
	send(t, first, syscall.SIGKILL)
	first.end(t)
	until(t, "the command is dead", func() bool {
		return exec.CommandContext(t.Context(), "flock", "-n", first.Dir+"/one", "true").Run() == nil
	})
}

// The guard has a name that says what it guards, is the parent of what the command leaves behind, and waits for it.
func TestRunReapsOrphans(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := startRun(t, server.Addr(), "job", "(sh -c 'echo $$ > orphan; "+untilOver+"' &); exec sleep 600")
	parent := func() string {
		pid, _ := os.ReadFile(s.Dir + "/orphan") // not there yet
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if len(pid) == 0 || err != nil {
			return ""
		}
		return strings.Fields(string(stat))[3]
	}
	until(t, "the guard is its parent", func() bool { return parent() == strconv.Itoa(guardOf(t, s)) })
	line, err := os.ReadFile("/proc/" + parent() + "/cmdline")
	if want := "lockdog: guard of job:\x00sh\x00"; err != nil || !strings.HasPrefix(string(line), want) {
		t.Errorf("the guard is %q, %v", line, err)
	}
	s.over(t)
	until(t, "it is gone, and not a zombie", func() bool { return parent() == "" })
	send(t, s, syscall.SIGTERM)
	s.end(t)
}

// The guard asks the command to end while lockdog can't, and it does. What it has started, and doesn't, is killed all the same.
func TestRunEndedByItsGuard(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	first := startWork(t, server.Addr(), dir, "job --lease 15s",
		`sh -c "trap '' TERM; touch deaf; exec sleep 600" & trap 'touch asked; exit 5' TERM; while :; do sleep 0.05; done`)
	first.makes(t, "deaf")
	send(t, first, syscall.SIGSTOP)
	first.makes(t, "asked")
	send(t, first, syscall.SIGCONT)
	first.end(t).want(t, exitLost, "", "lost")
	startSecond(t, server.Addr(), dir).end(t).want(t, 0, "second", "")
}

// A guard that is stopped goes on, and doesn't keep the program, and so the lock, when the command has ended.
func TestRunGuardStopped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	for name, test := range map[string]struct {
		lost bool
		code int
	}{"ends": {false, 0}, "loses": {true, exitLost}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startRun(t, server.Addr(), name+" --lease 1h", untilOver)
			until(t, "it has a guard", func() bool { return guardOf(t, s) != 0 })
			guard := guardOf(t, s)
			if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(guard, syscall.SIGCONT) }) // it ends with the program
			if test.lost {
				rdb.Del(t.Context(), name)
			} else {
				s.over(t)
			}
			s.end(t).want(t, test.code, "", "")
			wantFree(t, server, name)
		})
	}
}

// What a script had started before it became lockdog isn't the command's: a loss doesn't end it.
func TestRunLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cmd, _, _ := program(t.Context(), t, server.Addr(), nil, "run", "job", "--", "sh", "-c", "touch runs; exec sleep 600")
	script := "(" + untilOver + "; touch ended) > /dev/null 2>&1 & exec \"$@\""
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", script, "sh", cmd.Path}, cmd.Args[1:]...)
	s := begin(t, cmd)
	s.makes(t, "runs")
	server.Client(t).Del(t.Context(), "job")
	s.end(t).want(t, exitLost, "", "")
	s.over(t)
	s.makes(t, "ended")
}

package main

import (
	"os"
	"os/exec"
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
	first := start(t, server.Addr(), append([]string{"run", "job", "--lease", "1h", "--"}, work(dir, scattered)...)...)
	until(t, "the command runs", func() bool { return exists(dir + "/runs") })
	second := start(t, server.Addr(), append([]string{"run", "job", "--wait", "forever", "--"}, work(dir, "echo second")...)...)
	killGuard(t, guardOf(t, first))
	first.end(t).want(t, 137, "", "guards the command was killed")
	second.end(t).want(t, 0, "second", "")
}

// If lockdog and its guard are killed together, the kernel kills the command. It may be killed before its first act, too.
func TestRunBothKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	alone := []string{"flock", "--no-fork", "-n", "-E", "99", dir + "/one", "sh", "-c", "trap '' TERM; touch " + dir + "/runs; exec sleep 600"}
	first := start(t, server.Addr(), append([]string{"run", "job", "--lease", "1h", "--"}, alone...)...)
	until(t, "the command runs", func() bool { return exists(dir + "/runs") })
	guard := guardOf(t, first)
	send(t, first, syscall.SIGSTOP) // so that it can do nothing about the guard's end
	killGuard(t, guard)
	send(t, first, syscall.SIGKILL)
	first.end(t)
	until(t, "the command is dead", func() bool {
		return exec.CommandContext(t.Context(), "flock", "-n", dir+"/one", "true").Run() == nil
	})
}

// The guard is the parent of what the command leaves behind, and waits for it.
func TestRunReapsOrphans(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	s := start(t, server.Addr(), "run", "job", "--", "sh", "-c",
		"(sh -c 'echo $$ > "+dir+"/orphan; until [ -e "+dir+"/over ]; do sleep 0.05; done' &); exec sleep 600")
	parent := func() string {
		pid, _ := os.ReadFile(dir + "/orphan") // not there yet
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if len(pid) == 0 || err != nil {
			return ""
		}
		return strings.Fields(string(stat))[3]
	}
	until(t, "the guard is its parent", func() bool { return parent() == strconv.Itoa(guardOf(t, s)) })
	if err := os.WriteFile(dir+"/over", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "it is gone, and not a zombie", func() bool { return parent() == "" })
	send(t, s, syscall.SIGTERM)
	s.end(t)
}

// The guard has a name that says what it guards.
func TestRunGuardHasAName(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	s := start(t, server.Addr(), "run", "orders:42", "--", "sh", "-c", "touch "+dir+"/runs; exec sleep 600")
	until(t, "the command runs", func() bool { return exists(dir + "/runs") })
	line, err := os.ReadFile("/proc/" + strconv.Itoa(guardOf(t, s)) + "/cmdline")
	if want := "lockdog: guard of orders:42:\x00sh\x00"; err != nil || !strings.HasPrefix(string(line), want) {
		t.Errorf("it is %q, %v", line, err)
	}
	send(t, s, syscall.SIGTERM)
	s.end(t)
}

// The guard asks the command to end while lockdog can't, and it does. What it has started, and doesn't, is killed all the same.
func TestRunEndedByItsGuard(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	first := start(t, server.Addr(), append([]string{"run", "job", "--lease", "30s", "--"}, work(dir,
		"sh -c \"trap '' TERM; touch "+dir+"/deaf; exec sleep 600\" & trap 'touch "+dir+"/asked; exit 5' TERM; while :; do sleep 0.05; done")...)...)
	until(t, "the command runs", func() bool { return exists(dir + "/deaf") })
	send(t, first, syscall.SIGSTOP)
	until(t, "the guard asks the command to end", func() bool { return exists(dir + "/asked") })
	send(t, first, syscall.SIGCONT)
	first.end(t).want(t, exitLost, "", "lost")
	start(t, server.Addr(), append([]string{"run", "job", "--wait", "forever", "--"}, work(dir, "echo second")...)...).end(t).want(t, 0, "second", "")
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
			dir := t.TempDir()
			s := start(t, server.Addr(), "run", name, "--lease", "1h", "--", "sh", "-c", "touch "+dir+"/runs; while ! [ -e "+dir+"/over ]; do sleep 0.05; done")
			until(t, "the command runs", func() bool { return exists(dir+"/runs") && guardOf(t, s) != 0 })
			guard := guardOf(t, s)
			if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(guard, syscall.SIGCONT) }) // it ends with the program
			if test.lost {
				rdb.Del(t.Context(), name)
			} else if err := os.WriteFile(dir+"/over", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s.end(t).want(t, test.code, "", "")
			if rdb.Exists(t.Context(), name).Val() != 0 {
				t.Error("the lock isn't free")
			}
		})
	}
}

// What a script had started before it became lockdog isn't the command's: a loss doesn't end it.
func TestRunLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	cmd, _, _ := program(t.Context(), t, server.Addr(), nil, "run", "job", "--", "sh", "-c", "touch "+dir+"/runs; exec sleep 600")
	script := "(until [ -e " + dir + "/over ]; do sleep 0.05; done; touch " + dir + "/ended) > /dev/null 2>&1 & exec \"$@\""
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", script, "sh", cmd.Path}, cmd.Args[1:]...)
	s := begin(t, cmd)
	until(t, "the command runs", func() bool { return exists(dir + "/runs") })
	server.Client(t).Del(t.Context(), "job")
	s.end(t).want(t, exitLost, "", "")
	if err := os.WriteFile(dir+"/over", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the other has gone on", func() bool { return exists(dir + "/ended") })
}

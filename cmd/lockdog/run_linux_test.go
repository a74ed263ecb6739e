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

// A guard that is killed has a successor, which does what it would have done.
func TestRunGuardKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	first := start(t, server.Addr(), append([]string{"run", "job", "--lease", "3s", "--"}, work(dir, "trap '' TERM; sleep 600 & sleep 600")...)...)
	until(t, "the command runs", func() bool { return exists(dir + "/runs") })
	for range 2 {
		guard := 0
		until(t, "it has a guard", func() bool { guard = guardOf(t, first); return guard != 0 })
		if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, "it has another guard", func() bool { next := guardOf(t, first); return next != 0 && next != guard })
	}
	second := start(t, server.Addr(), append([]string{"run", "job", "--lease", "3s", "--wait", "forever", "--"}, work(dir, "echo second")...)...)
	send(t, first, syscall.SIGKILL)
	second.end(t).want(t, 0, "second", "")
	first.end(t)
}

// A guard that is stopped doesn't keep the program, and so the lock, when the command has ended.
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
			s := start(t, server.Addr(), "run", name, "--lease", "3s", "--", "sh", "-c", "touch "+dir+"/runs; while ! [ -e "+dir+"/over ]; do sleep 0.05; done")
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

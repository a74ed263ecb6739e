//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/agent"
)

// TestAgent: a lease lives on while its agent is stopped, goes on, is replaced, ends and is killed, and while there is one it renews.
func TestAgent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	status := func() (s agent.Status) {
		r := lockdog(t, server.Addr(), nil, "agent", "status", "--json", "--socket", socket)
		_ = json.Unmarshal([]byte(r.stdout), &s) // nothing if there is no agent
		return s
	}
	// renews waits until the agent that is there now has renewed something since, and returns its process.
	renews := func() int {
		t.Helper()
		before := status()
		until(t, "a renewal by the agent", func() bool { s := status(); return s.PID != 0 && s.Renewed > before.Renewed })
		return status().PID
	}
	run := func() *starting {
		s := start(t, server.Addr(), "agent", "--socket", socket, "--mode", "0660")
		until(t, "the agent runs", func() bool { return status().PID == s.Process.Pid })
		return s
	}
	c, err := lock.New(server.Client(t), lock.WithAgent(socket), lock.WithLease(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	l, err := c.Mutex("job").Lock(t.Context()) // before there is an agent
	if err != nil {
		t.Fatal(err)
	}
	livesOn := func() {
		t.Helper()
		end := l.Deadline().Add(3 * time.Second)
		until(t, "renewals", func() bool { return l.Err() != nil || l.Deadline().After(end) })
		if l.Err() != nil {
			t.Fatal(l.Err())
		}
	}
	livesOn()
	first := run()
	renews()
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	lockdog(t, server.Addr(), nil, "agent", "status", "--socket", socket).want(t, 0, "clients   1, which hold 1 locks\n", "")

	_ = first.Process.Signal(syscall.SIGSTOP)
	livesOn()
	_ = first.Process.Signal(syscall.SIGCONT)
	renews()
	second := run()
	_ = first.Process.Signal(syscall.SIGTERM)
	first.end(t).want(t, exitOK, "renewing for clients at "+socket, "")
	livesOn()
	if pid := renews(); pid != second.Process.Pid {
		t.Errorf("process %d renews", pid)
	}
	_ = second.Process.Kill()
	livesOn()
	lockdog(t, server.Addr(), nil, "agent", "status", "--socket", socket).want(t, exitUnavailable, "", "no agent at "+socket)
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	lockdog(t, server.Addr(), nil, "agent", "--mode", "rw").want(t, exitUsage, "", `--mode "rw": must be`)
	lockdog(t, server.Addr(), nil, "agent", "--socket", dir+"/none/x").want(t, exitUsage, "", "--socket: ")
	lockdog(t, "127.0.0.1:1", nil, "agent", "--socket", socket).want(t, exitUnavailable, "", "no connection")
}

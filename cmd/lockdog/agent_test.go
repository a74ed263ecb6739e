//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	lockdog(t, server.Addr(), nil, "agent", "status", "--socket", socket).want(t, exitUnavailable, "", "no answer of an agent at "+socket)
	if full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil { // other systems have none
		defer func() { _ = full.Close() }()
		third, _, _ := program(t.Context(), t, server.Addr(), nil, "agent", "--socket", socket)
		third.Stdout, third.Stderr = full, full
		begin(t, third)
		until(t, "an agent that can't write", func() bool { return status().PID == third.Process.Pid })
		livesOn()
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	lockdog(t, server.Addr(), nil, "agent", "--mode", "rw").want(t, exitUsage, "", `--mode "rw": must be`)
	lockdog(t, server.Addr(), nil, "agent", "--socket", dir+"/none/x").want(t, exitUsage, "", "--socket: ")
	lockdog(t, "127.0.0.1:1", nil, "agent", "--socket", socket).want(t, exitUnavailable, "", "no connection")
}

// installed is a command to run a program that has to be there.
func installed(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("%s is missing; get it with: internal/ci/setup.sh", name)
	}
	return exec.CommandContext(t.Context(), name, args...)
}

// TestOtherLanguages: the program in docs/AGENT.md holds a lock while it runs. Another user, who has curl, may not take it.
func TestOtherLanguages(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir, err := os.MkdirTemp("", "lockdog") // which another user may open
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	socket, policy := filepath.Join(dir, "agent.sock"), filepath.Join(dir, "policy.json")
	if err := os.WriteFile(policy, fmt.Appendf(nil, `{"%d": ["report"]}`, os.Getuid()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, server.Addr(), "agent", "--socket", socket, "--mode", "0666", "--policy", policy)
	until(t, "the agent runs", func() bool { _, err := os.Stat(socket); return err == nil })

	text, err := os.ReadFile("../../docs/AGENT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(text), "```python\n")
	program, _, _ = strings.Cut(program, "```")
	program = strings.ReplaceAll(program, defaultSocket, socket) + "\nimport sys, time\nsys.stdout.flush()\ntime.sleep(3600)\n"
	python := installed(t, "python3", "-c", program)
	out, err := python.StdoutPipe()
	if err == nil {
		err = python.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(said, "working, with the token ") {
		t.Fatalf("the program said %q, %v", said, err)
	}
	c := client(t, server)
	if _, err := c.Mutex("report").TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("beside the program: %v", err)
	}

	pid := fmt.Sprint(python.Process.Pid)
	lockdog(t, server.Addr(), nil, "agent", "ls", "--socket", socket).want(t, 0, "report  mutex  "+pid, "")
	lockdog(t, server.Addr(), nil, "agent", "ls", "--json", "--socket", socket).want(t, 0, `"pid":`+pid, "")
	page := installed(t, "curl", "-sS", "--unix-socket", socket, "http://x/debug/locks")
	if out, err := page.CombinedOutput(); err != nil || !strings.Contains(string(out), `"report"`) {
		t.Errorf("the debug page: %s, %v", out, err)
	}

	name := "http://x/v1/locks/report"
	curl := installed(t, "curl", "-sS", "--unix-socket", socket, "-X", "POST", name)
	if os.Getuid() == 0 {
		curl.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1, Gid: 1}}
	} else { // the same from the other side: a lock that is another's
		curl.Args[len(curl.Args)-1] = name + "2"
	}
	if out, err := curl.CombinedOutput(); err != nil || !strings.Contains(string(out), "the policy doesn't let user") {
		t.Errorf("curl as another user: %s, %v", out, err)
	}
	if os.Getuid() == 0 {
		page = installed(t, "curl", page.Args[1:]...)
		page.SysProcAttr = curl.SysProcAttr
		if out, err := page.CombinedOutput(); err != nil || !strings.Contains(string(out), "only for root") {
			t.Errorf("the debug page for another user: %s, %v", out, err)
		}
	}

	_ = python.Process.Kill()
	_ = python.Wait()
	l, err := c.Mutex("report").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Release(t.Context())
	python = installed(t, "python3", "-c", program)
	var errs bytes.Buffer
	python.Stderr = &errs
	if err := python.Start(); err != nil {
		t.Fatal(err)
	}
	rdb := server.Client(t)
	until(t, "the program holds the lock", func() bool { return rdb.Exists(t.Context(), "report").Val() == 1 })
	_ = s.Process.Signal(syscall.SIGTERM)
	if err := python.Wait(); !strings.Contains(errs.String(), "stopping, after {'lost': 'the agent ends'}") || python.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM { //nolint:forcetypeassert // on Unix
		t.Errorf("the program whose agent ended: %v\n%s", err, &errs)
	}
	s.end(t).want(t, exitOK, "", "")
}

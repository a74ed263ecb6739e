package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

// asProgram makes this test binary the program that it tests, with the race detector.
const asProgram = "LOCKDOG_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if guard() {
		return
	}
	if os.Getenv(asProgram) != "" {
		if err := os.Setenv("GOCOVERDIR", os.Getenv("HOME")); err != nil { // with -cover it would warn at its end that it has none
			panic(err)
		}
		main()
		return
	}
	redistest.Main(m)
}

// patience is for what happens at once, on a machine that hardly lets us run. Nothing is measured by it.
const patience = 2 * time.Minute

// result is what became of the program.
type result struct {
	code           int
	stdout, stderr string
}

// lockdog runs the program against a server, and waits for its end. env has further variables, NAME=value, for it.
func lockdog(t *testing.T, address string, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd, stdout, stderr := program(ctx, t, address, env, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("lockdog %s: %v", strings.Join(args, " "), err)
	}
	return result{codeOf(cmd.ProcessState), stdout.String(), stderr.String()}
}

// codeOf is the exit code as a shell has it.
func codeOf(s *os.ProcessState) int {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return s.ExitCode()
}

// program is the program, not started yet, in a directory of its own.
func program(ctx context.Context, t *testing.T, address string, env []string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(ctx, self, args...)
	cmd.Dir = t.TempDir()
	cmd.WaitDelay = 2 * patience // what it leaves behind may have its output
	cmd.Env = append([]string{
		asProgram + "=1", "REDIS_URL=" + address, "PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "NO_COLOR=1",
		"GORACE=atexit_sleep_ms=0 " + os.Getenv("GORACE"), // by default the race detector waits for a second at the end of each process
	}, env...)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without the terminal that the tests may be run at
	return cmd, stdout, stderr
}

// want checks the exit code, and that the outputs contain texts.
func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.stdout, stdout) || !strings.Contains(r.stderr, stderr) {
		t.Errorf("exit code %d, want %d\nstdout, want %q:\n%s\nstderr, want %q:\n%s", r.code, code, stdout, r.stdout, stderr, r.stderr)
	}
}

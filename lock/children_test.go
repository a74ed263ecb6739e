package lock_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/proc"
)

// Some promises are about several processes: then this test binary starts itself again, in the role of a child.

const childEnv = "LOCKDOG_TEST_CHILD"

// children are the roles. What they say is lines on stdout.
var children = map[string]func(addr, prefix string, say func(format string, args ...any)) error{
	"stopped":   childStopped,
	"contender": childContender,
	"zombie":    childZombie,
	"starved":   childStarved,
	"fips":      childFIPS,
}

func init() {
	role, rest, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		return
	}
	addr, prefix, _ := strings.Cut(rest, " ")
	out := bufio.NewWriter(os.Stdout)
	var mu sync.Mutex
	err := children[role](addr, prefix, func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(out, format+"\n", args...)
		_ = out.Flush()
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is such a process.
type child struct {
	process *proc.Process
	stdin   io.Writer
	lines   chan string // closed at its end
}

// startChild starts one, with more in its environment. It ends with the test at the latest.
func startChild(t testing.TB, role, addr, prefix string, env ...string) *child {
	t.Helper()
	return startChildWith(t, nil, role, addr, prefix, env...)
}

// startChildWith is startChild with attributes for the process.
func startChildWith(t testing.TB, attr *syscall.SysProcAttr, role, addr, prefix string, env ...string) *child {
	t.Helper()
	// Pipes of our own: exec closes its as soon as the process has ended, when lines may be yet to be read.
	theirs, stdin := pipe(t)
	stdout, ours := pipe(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), env...), childEnv+"="+role+" "+addr+" "+prefix)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = theirs, ours, os.Stderr, attr
	process, err := proc.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = theirs.Close(), ours.Close() // the child has them
	ch := &child{process: process, stdin: stdin, lines: make(chan string, 1024)}
	go func() {
		defer close(ch.lines)
		for sc := bufio.NewScanner(stdout); sc.Scan(); {
			ch.lines <- sc.Text()
		}
	}()
	t.Cleanup(func() {
		ch.kill(t)
		for range ch.lines {
		}
	})
	return ch
}

// pipe returns the ends of one, which the test's end closes.
func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// tell sends the child a line.
func (ch *child) tell(t testing.TB, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(ch.stdin, line); err != nil {
		t.Fatal(err)
	}
}

// expect waits for the child's next line.
func (ch *child) expect(t testing.TB, want string) {
	t.Helper()
	select {
	case got, ok := <-ch.lines:
		if !ok || got != want {
			t.Fatalf("the child says %q, want %q", got, want)
		}
	case <-time.After(stretched(patience)):
		t.Fatalf("the child says nothing, want %q", want)
	}
}

func (ch *child) stop(t testing.TB)   { ch.signal(t, syscall.SIGSTOP) }
func (ch *child) resume(t testing.TB) { ch.signal(t, syscall.SIGCONT) }

func (ch *child) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := ch.process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// kill ends it as a crash would.
func (ch *child) kill(t testing.TB) {
	t.Helper()
	if err := ch.process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// wait waits for a good end.
func (ch *child) wait(t testing.TB) {
	t.Helper()
	if err := ch.process.Wait(stretched(patience)); err != nil {
		t.Fatalf("the child: %v", err)
	}
}

package lock_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Some promises are about several processes: then this test binary starts itself again, in the role of a child.

const childEnv = "LOCKDOG_TEST_CHILD"

// children are the roles. What they say is lines on stdout.
var children = map[string]func(addr, prefix string, say func(format string, args ...any)) error{
	"stopped":    childStopped,
	"contender":  childContender,
	"fair":       childFair,
	"read-write": childReadWrite,
	"crowd":      childCrowd,
	"taker":      childTaker,
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
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
	ended chan error
}

// startChild starts one. It ends with the test at the latest.
func startChild(t *testing.T, role, addr, prefix string) *child {
	t.Helper()
	ch := &child{cmd: exec.Command(os.Args[0]), lines: make(chan string, 1024), ended: make(chan error, 1)}
	ch.cmd.Env = append(os.Environ(), childEnv+"="+role+" "+addr+" "+prefix)
	ch.cmd.Stderr = os.Stderr
	stdout, err := ch.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if ch.stdin, err = ch.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	ch.cmd.SysProcAttr = diesWithParent()
	started := make(chan error, 1)
	go func() {
		// The kernel ties "dies with its parent" to the thread that forked.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := ch.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for sc := bufio.NewScanner(stdout); sc.Scan(); {
			ch.lines <- sc.Text()
		}
		close(ch.lines)
		ch.ended <- ch.cmd.Wait()
		close(ch.ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ch.cmd.Process.Kill()
		for range ch.lines {
		}
		for range ch.ended {
		}
	})
	return ch
}

// expect waits for the child's next line.
func (ch *child) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got, ok := <-ch.lines:
		if !ok || got != want {
			t.Fatalf("the child says %q, want %q", got, want)
		}
	case <-time.After(2 * patience):
		t.Fatalf("the child says nothing, want %q", want)
	}
}

func (ch *child) stop(t *testing.T)   { ch.signal(t, syscall.SIGSTOP) }
func (ch *child) resume(t *testing.T) { ch.signal(t, syscall.SIGCONT) }

func (ch *child) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := ch.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// wait waits for a good end.
func (ch *child) wait(t *testing.T) {
	t.Helper()
	select {
	case err := <-ch.ended:
		if err != nil {
			t.Fatalf("the child: %v", err)
		}
	case <-time.After(2 * patience):
		t.Fatal("the child doesn't end")
	}
}

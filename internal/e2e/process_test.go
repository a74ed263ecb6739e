//go:build e2e

package e2e_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/proc"
	"github.com/lockdog/lockdog/internal/redistest"
)

const (
	startLimit = 30 * time.Second // from the start of a program until it answers
	stopLimit  = 15 * time.Second // from SIGTERM until it has ended
	logTail    = 4000             // bytes of a log that are shown when the test fails
)

// program is a child process. Its output is kept in logs.
type program struct {
	*proc.Process
	name, log string
	cmd       *exec.Cmd
}

// launch starts a program that ends with the test, and shows what it wrote if that fails. env is added to ours.
func launch(t *testing.T, name string, env []string, bin string, args ...string) *program {
	t.Helper()
	p := &program{name: name, log: filepath.Join(logs(t), name+".log"), cmd: exec.Command(bin, args...)}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }() // the child has its own
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	if p.Process, err = proc.Start(p.cmd); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s ends with:\n%s", p.log, p.tail())
		}
		if err := p.Kill(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return p
}

// ready waits until url answers with 200.
func (p *program) ready(t *testing.T, url string) {
	t.Helper()
	until(t, startLimit, p.name+" answers at "+url, func() error {
		if p.Ended() {
			t.Fatalf("%s ended, %v:\n%s", p.name, p.cmd.ProcessState, p.tail())
		}
		_, err := get(t, url)
		return err
	})
}

// terminate asks the program to end, and returns how it did.
func (p *program) terminate(t *testing.T) *os.ProcessState {
	t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("terminate %s: %v", p.name, err)
	}
	select {
	case <-p.Done():
	case <-time.After(stopLimit):
		t.Fatalf("%s still runs %v after SIGTERM", p.name, stopLimit)
	}
	return p.cmd.ProcessState
}

func (p *program) tail() []byte {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	if len(text) > logTail {
		text = text[len(text)-logTail:]
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return text
}

// logs is the folder for what programs write, made when it is missing.
func logs(t *testing.T) string {
	t.Helper()
	dir := fromRoot(t, "bin", "e2e")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fromRoot gives the absolute path of a file of the repository.
func fromRoot(t *testing.T, path ...string) string {
	t.Helper()
	abs, err := filepath.Abs(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// build compiles a command of the repository, and gives the path of the program.
func build(t *testing.T, path ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), path[len(path)-1])
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, fromRoot(t, path...)).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// installed gives the path of a program that has to be there.
func installed(t *testing.T, name, how string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing; get it with: %s", name, how)
	}
	return path
}

// freeAddrs are loopback addresses on which nobody listens yet.
func freeAddrs(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for range n {
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(redistest.FreePort(t))))
	}
	return addrs
}

// until polls until ok gives no error, and fails the test with its last one.
func until(t *testing.T, limit time.Duration, what string, ok func() error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	over := time.After(limit)
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
	}
}

// unless gives an error when cond does not hold: what until polls for.
func unless(cond bool, format string, args ...any) error {
	if cond {
		return nil
	}
	return fmt.Errorf(format, args...)
}

//go:build interop

package interop_test

import (
	"bufio"
	"bytes"
	"errors"
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

const (
	startLimit = 2 * time.Minute // from the start of a process until it is ready: a JVM without a free core
	callLimit  = 2 * time.Minute // until a call is answered, unless it has to wait for longer
)

// peer is another process that takes locks as it is told: a JVM with Redisson, or a child of ours. Both speak the
// protocol of java's Main.
type peer struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	hello  chan string   // its first line
	id     []string      // the words of that
	done   chan struct{} // closed when it has ended and was reaped

	mu    sync.Mutex
	stdin io.Writer
	calls int
	open  map[string]chan answer // the answer's channel, by the number of the call; nil when the process has ended
}

// launch starts a process, which ends with the test at the latest. It may be used once it is ready.
func launch(t *testing.T, cmd *exec.Cmd) *peer {
	t.Helper()
	p := &peer{cmd: cmd, hello: make(chan string, 1), done: make(chan struct{}), open: make(map[string]chan answer)}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // after a -timeout no cleanup is run
	started := make(chan error, 1)
	go func() {
		// The kernel ties Pdeathsig to the thread that forked: it has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			p.read(stdout)
			_ = cmd.Wait() // killed, as a rule
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	t.Cleanup(func() {
		p.kill(t)
		if t.Failed() && p.stderr.Len() > 0 {
			t.Logf("%s wrote to stderr:\n%s", cmd.Path, p.stderr.String())
		}
	})
	return p
}

// read delivers what the process says, until it ends.
func (p *peer) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	if lines.Scan() {
		p.hello <- lines.Text()
	}
	close(p.hello)
	for lines.Scan() {
		number, text, _ := strings.Cut(lines.Text(), " ")
		p.mu.Lock()
		ch := p.open[number]
		delete(p.open, number)
		p.mu.Unlock()
		if ch != nil {
			ch <- answer{text, time.Now()}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ch := range p.open {
		close(ch)
	}
	p.open = nil
}

// ready waits until the process takes calls.
func (p *peer) ready(t *testing.T) *peer {
	t.Helper()
	select {
	case line := <-p.hello:
		p.id = strings.Fields(line)
		if len(p.id) != 3 || p.id[0] != "ready" {
			p.kill(t)
			t.Fatalf("%s says %q instead of ready; on stderr:\n%s", p.cmd.Path, line, p.stderr.String())
		}
	case <-time.After(startLimit):
		t.Fatalf("%s isn't ready after %v", p.cmd.Path, startLimit)
	}
	return p
}

// version is that of its lock library, client the id of its client, which owners begin with.
func (p *peer) version() string { return p.id[1] }
func (p *peer) client() string  { return p.id[2] }

// kill ends the process as a crash would, and returns when it is gone.
func (p *peer) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("kill %s: %v", p.cmd.Path, err)
	}
	<-p.done
}

// pause stops the process until resume, as a machine that has no time for it does.
func (p *peer) pause(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	time.Sleep(100 * time.Millisecond) // what it had begun to send comes to Redis
}

func (p *peer) resume(t *testing.T) { p.signal(t, syscall.SIGCONT) }

func (p *peer) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("%v for %s: %v", sig, p.cmd.Path, err)
	}
}

// call is something that a process was told to do.
type call struct {
	line   string
	answer chan answer
	at     time.Time // when it was answered
}

type answer struct {
	text string
	at   time.Time
}

// send tells the process to do something, on the thread with that label.
func (p *peer) send(t *testing.T, thread, operation, kind, name string, args ...any) *call {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		t.Fatalf("%s has ended", p.cmd.Path)
	}
	p.calls++
	number := fmt.Sprint(p.calls)
	c := &call{line: strings.Join([]string{thread, operation, kind, name}, " "), answer: make(chan answer, 1)}
	for _, arg := range args {
		c.line += fmt.Sprint(" ", arg)
	}
	p.open[number] = c.answer
	if _, err := fmt.Fprintln(p.stdin, number, c.line); err != nil {
		t.Fatalf("tell %s to %s: %v", p.cmd.Path, c.line, err)
	}
	return c
}

// wait is for the answer: ok and the result, or failed and why.
func (c *call) wait(t *testing.T, limit time.Duration) (verdict, text string) {
	t.Helper()
	select {
	case answer, ok := <-c.answer:
		if !ok {
			t.Fatalf("%s: the process ended", c.line)
		}
		c.at = answer.at
		verdict, text, _ = strings.Cut(answer.text, " ")
	case <-time.After(limit):
		t.Fatalf("%s: no answer after %v", c.line, limit)
	}
	return verdict, text
}

// result is what a call that has to succeed returned.
func (c *call) result(t *testing.T, limit time.Duration) string {
	t.Helper()
	verdict, text := c.wait(t, limit)
	if verdict != "ok" {
		t.Fatalf("%s: %s", c.line, text)
	}
	return text
}

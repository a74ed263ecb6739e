// Package fleet runs child processes that talk to their parent in lines of JSON. The first line that a child reads is
// its configuration. Each later line is a Request, which the child answers with a line. A child ends when its input
// ends.
package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/lockdog/lockdog/internal/proc"
)

// lastWait is how long Close waits for the end of each child. Then it kills the child.
const lastWait = 20 * time.Second

// Request asks a child to do something.
type Request struct {
	Do   string  `json:"do"`
	Over float64 `json:"over,omitempty"` // how many seconds it should take
}

// reply is a child's answer.
type reply[R any] struct {
	Error  string `json:"error,omitempty"`
	Result R      `json:"result"`
}

// Fleet is a group of children that do the same work. Their answers are of type R.
type Fleet[R any] []*Member[R]

// Member is one child process.
type Member[R any] struct {
	*proc.Process
	in      io.WriteCloser
	out     []byte        // the beginning of a line
	replies chan reply[R] // closed at the child's end
	stderr  tail
}

// Start adds a child. command is the program to run; nil: this program. In a child that is this program, IsChild
// returns true.
func (f *Fleet[R]) Start(command []string, cfg any) error {
	var env []string
	if command == nil {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		command, env = []string{self}, append(os.Environ(), childEnv+"=1")
	}
	cmd := exec.Command(command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	m := &Member[R]{in: in, replies: make(chan reply[R], 8)}
	cmd.Env, cmd.Stdout, cmd.Stderr = env, m, &m.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if m.Process, err = proc.Start(cmd); err != nil {
		return err
	}
	go func() {
		<-m.Done() // after the last Write
		close(m.replies)
	}()
	*f = append(*f, m)
	return m.send(cfg)
}

// Write gets the child's output, and passes on the replies. A line that isn't a reply is added to the error output.
func (m *Member[R]) Write(b []byte) (int, error) {
	m.out = append(m.out, b...)
	for {
		line, rest, ended := bytes.Cut(m.out, []byte("\n"))
		if !ended {
			return len(b), nil
		}
		var r reply[R]
		if json.Unmarshal(line, &r) == nil {
			m.replies <- r
		} else {
			_, _ = m.stderr.Write(append(line, '\n'))
		}
		m.out = rest
	}
}

func (m *Member[R]) send(v any) error { return json.NewEncoder(m.in).Encode(v) }

func (m *Member[R]) result(ctx context.Context) (result R, err error) {
	select {
	case <-ctx.Done():
		return result, context.Cause(ctx)
	case r, ok := <-m.replies:
		switch {
		case !ok:
			return result, m.failed(errors.Join(errors.New("it ended"), m.Wait(time.Second)))
		case r.Error != "":
			return result, m.failed(errors.New(r.Error))
		}
		return r.Result, nil
	}
}

func (m *Member[R]) failed(err error) error {
	return fmt.Errorf("child process %d: %w\n%s", m.PID(), err, &m.stderr)
}

// Ask sends a request to all children, one right after the other, and waits for their answers.
func (f Fleet[R]) Ask(ctx context.Context, request Request) ([]R, error) {
	for _, m := range f {
		if err := m.send(request); err != nil {
			return nil, m.failed(errors.Join(err, m.Wait(time.Second)))
		}
	}
	results, errs := make([]R, len(f)), make([]error, len(f))
	for i, m := range f {
		results[i], errs[i] = m.result(ctx)
	}
	return results, errors.Join(errs...)
}

// Close closes the children's input, and waits until they have ended. A child that takes too long is killed.
func (f Fleet[R]) Close() error {
	var errs []error
	for _, m := range f {
		_ = m.in.Close() // it may be closed already if the child has ended
	}
	for _, m := range f {
		go func() {
			for range m.replies { // otherwise a full channel could block the child's end
			}
		}()
		if err := m.Wait(lastWait); err != nil {
			errs = append(errs, m.failed(err))
		}
	}
	return errors.Join(errs...)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 4096

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	t.buf = t.buf[max(0, len(t.buf)-tailSize):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}

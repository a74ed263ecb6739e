package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/lockdog/lockdog/internal/proc"
	"github.com/lockdog/lockdog/loadtest/internal/child"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// Bounds on what children may take for the end of a run that was interrupted.
const (
	windUp   = 10 * time.Second // to release
	lastWait = 10 * time.Second // to end
)

// fleet is the child processes of one role.
type fleet struct {
	members []*member
}

// member is one child process.
type member struct {
	process *proc.Process
	in      *os.File
	replies chan wire.Reply // closed at the end of its output
	stderr  *tail
	done    bool // it has released
}

// startFleet starts a process for each configuration. command is what to run; nil: this program itself.
func startFleet(command []string, configs []wire.Config) (*fleet, error) {
	var env []string
	if command == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		command, env = []string{self}, append(os.Environ(), child.Env+"=1")
	}
	f := &fleet{}
	for i := range configs {
		m, err := startMember(exec.Command(command[0], command[1:]...), env, &configs[i])
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.members = append(f.members, m)
	}
	return f, nil
}

func startMember(cmd *exec.Cmd, env []string, cfg *wire.Config) (*member, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), in.Close())
	}
	m := &member{in: in, replies: make(chan wire.Reply, 8), stderr: &tail{}}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, theirIn, theirOut, m.stderr
	m.process, err = proc.StartApart(cmd)
	err = errors.Join(err, theirIn.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	go m.listen(out)
	return m, m.send(cfg)
}

// listen reads replies until the output ends. What is no reply is a complaint.
func (m *member) listen(out *os.File) {
	defer close(m.replies)
	defer func() { _ = out.Close() }()
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var r wire.Reply
		if json.Unmarshal(line, &r) != nil {
			_, _ = m.stderr.Write(line)
			continue
		}
		m.replies <- r
	}
}

func (m *member) send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = m.in.Write(append(line, '\n'))
	return err
}

// ask sends a request and waits for its reply.
func (m *member) ask(ctx context.Context, req wire.Request) (wire.Reply, error) {
	if err := m.send(req); err != nil {
		return wire.Reply{}, m.died(err)
	}
	return m.reply(ctx)
}

func (m *member) reply(ctx context.Context) (wire.Reply, error) {
	select {
	case <-ctx.Done():
		return wire.Reply{}, context.Cause(ctx)
	case r, ok := <-m.replies:
		if !ok {
			return r, m.died(errors.New("it ended"))
		}
		if r.Error != "" {
			return r, fmt.Errorf("child process %d: %s", m.process.PID(), r.Error)
		}
		return r, nil
	}
}

func (m *member) died(err error) error {
	return fmt.Errorf("child process %d: %w\n%s", m.process.PID(), errors.Join(err, m.process.Wait(time.Second)), m.stderr)
}

// ask asks all, at the same time.
func (f *fleet) ask(ctx context.Context, req wire.Request) ([]wire.Reply, error) {
	replies, errs := make([]wire.Reply, len(f.members)), make([]error, len(f.members))
	var all sync.WaitGroup
	for i, m := range f.members {
		all.Go(func() {
			replies[i], errs[i] = m.ask(ctx, req)
			m.done = req.Do == wire.DoRelease && errs[i] == nil
		})
	}
	all.Wait()
	return replies, errors.Join(errs...)
}

// close ends the processes. Those that still hold locks, as the run was interrupted or failed, are given time to release.
func (f *fleet) close() error {
	errs := make([]error, len(f.members))
	var all sync.WaitGroup
	for i, m := range f.members {
		all.Go(func() { errs[i] = m.close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (m *member) close() error {
	if !m.done && !m.process.Ended() {
		_ = m.send(wire.Request{Do: wire.DoRelease}) // if it can't hear, it is ended below
		ctx, cancel := context.WithTimeout(context.Background(), windUp)
		defer cancel()
		for {
			r, err := m.reply(ctx)
			if r.Did == wire.DoRelease || ctx.Err() != nil || err != nil && m.process.Ended() {
				break
			}
		}
	}
	_ = m.in.Close()
	err := m.process.Wait(lastWait)
	for range m.replies {
	}
	if err != nil {
		return fmt.Errorf("child process %d: %w\n%s", m.process.PID(), err, m.stderr)
	}
	return nil
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

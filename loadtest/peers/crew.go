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
	"time"

	"github.com/lockdog/lockdog/internal/proc"
	"github.com/lockdog/lockdog/loadtest/peers/internal/work"
)

// crew is the processes of one measurement.
type crew struct{ members []*member }

// member is one of them.
type member struct {
	process *proc.Process
	in      *os.File
	out     *os.File
	replies chan work.Reply // closed at the end of its output
	stderr  *bytes.Buffer
}

// lastWait is how long a process may take to end.
const lastWait = 20 * time.Second

// start starts this program once more, as a child.
func (c *crew) start(cfg work.Config) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, theirIn.Close(), in.Close())
	}
	m := &member{in: in, out: out, replies: make(chan work.Reply, 2), stderr: new(bytes.Buffer)}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), work.Env+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, m.stderr
	m.process, err = proc.StartApart(cmd)
	if err = errors.Join(err, theirIn.Close(), theirOut.Close()); err != nil {
		return errors.Join(err, in.Close(), out.Close())
	}
	c.members = append(c.members, m)
	go m.listen()
	return m.send(cfg)
}

func (m *member) listen() {
	defer close(m.replies)
	for in := json.NewDecoder(bufio.NewReader(m.out)); ; {
		var r work.Reply
		if in.Decode(&r) != nil {
			return
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

// tell gives all a line, one right after the other.
func (c *crew) tell(line string) error {
	var errs []error
	for _, m := range c.members {
		_, err := m.in.WriteString(line + "\n")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// replies waits for one reply of each.
func (c *crew) replies(ctx context.Context) ([]work.Reply, error) {
	var all []work.Reply
	for _, m := range c.members {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case r, ok := <-m.replies:
			switch {
			case !ok:
				err := m.process.Wait(time.Second)
				return nil, fmt.Errorf("a child process ended early: %w\n%s", err, m.stderr)
			case r.Error != "":
				return nil, fmt.Errorf("a child process: %s", r.Error)
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// close ends them all. Each gives back what it holds when its input ends.
func (c *crew) close() error {
	var errs []error
	for _, m := range c.members {
		errs = append(errs, m.in.Close())
	}
	for _, m := range c.members {
		if err := m.process.Wait(lastWait); err != nil {
			errs = append(errs, fmt.Errorf("a child process: %w\n%s", err, m.stderr))
		}
		errs = append(errs, m.out.Close())
		for range m.replies {
		}
	}
	return errors.Join(errs...)
}

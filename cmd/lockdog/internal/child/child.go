//go:build unix

// Package child runs a command that must not work for longer than it is allowed to: until a deadline that the caller keeps moving. A second process, the guard,
// ends the command where the caller can't, because it was killed or stopped.
//
//	lockdog ──starts──▶ command, and all that it starts: a process group
//	   │                   ▲
//	   └──deadline──▶ guard ┘ ends it at the deadline, or when lockdog is gone
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopWithin is how long it takes at most until a process that gets SIGTSTP has stopped.
const stopWithin = time.Second

// Limit is when a command is asked to end, and when it is forced.
type Limit struct{ Ask, Kill time.Time }

// Child is a command that runs in a process group of its own.
type Child struct {
	pid      int
	terminal *terminal // nil where it has none
	guard    *guard
	resumed  func() bool // asked before it goes on after a stop
	ending   atomic.Bool // End was called
	done     chan struct{}
	status   syscall.WaitStatus // set before done

	mu    sync.Mutex
	ended bool // it was reaped: its id may be another's
}

// Start starts a command. Where stdin is the terminal that this process is in front of, the command is put in front of it: it reads from it, and Ctrl-C and Ctrl-Z
// reach it alone. If it is stopped, so is this process; when that goes on, resumed reports whether the command may, too.
//
// limit is the first one: see Extend.
func Start(cmd *exec.Cmd, limit Limit, resumed func() bool) (*Child, error) {
	c := &Child{terminal: controlling(cmd.Stdin), resumed: resumed, done: make(chan struct{})}
	cmd.SysProcAttr = diesWithParent()
	cmd.SysProcAttr.Setpgid = true
	if c.terminal != nil {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, c.terminal.fd
	}
	started := make(chan error, 1)
	go func() {
		// The kernel ties "dies with its parent" to the thread that forked, so that one has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		c.pid = cmd.Process.Pid
		started <- nil
		c.wait()
	}()
	if err := <-started; err != nil {
		c.terminal.takeBack(c.pid)
		return nil, err
	}
	var err error
	if c.guard, err = startGuard(c.pid, limit); err != nil {
		c.Kill()
		<-c.done
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return c, nil
}

// wait reaps the command, and stops with it.
func (c *Child) wait() {
	defer close(c.done)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && status.Stopped():
			c.stopToo(status.StopSignal())
		default:
			c.mu.Lock()
			c.ended, c.status = true, status
			c.mu.Unlock()
			c.terminal.takeBack(c.pid)
			return
		}
	}
}

// stopToo stops this process after the command was stopped at the terminal, so that the shell is back; when it goes on, so does the command. A command that
// somebody stopped otherwise is left alone.
func (c *Child) stopToo(sig syscall.Signal) {
	if c.terminal == nil || sig == syscall.SIGSTOP {
		return
	}
	c.terminal.takeBack(c.pid)
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	_ = syscall.Kill(0, syscall.SIGTSTP) // another thread may be the one to get it, some time later
	select {
	case <-continued:
	case <-time.After(stopWithin): // nobody is there who could continue us, so the kernel doesn't stop us; or we have been continued
	}
	signal.Stop(continued)
	if !c.resumed() {
		return // the caller ends it
	}
	if c.terminal.front() == c.terminal.own { // with bg the shell stays in front; for fg it has put us there before it continued us
		c.terminal.give(c.pid)
	}
	c.Signal(syscall.SIGCONT)
}

// Done is closed when the command has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// ExitCode is what the command exited with, or 128 and the number of the signal that ended it, after Done.
func (c *Child) ExitCode() int {
	if c.status.Signaled() {
		return 128 + int(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// Signal sends a signal to the command and all that it started, unless the command has ended.
func (c *Child) Signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		_ = syscall.Kill(-c.pid, sig)
	}
}

// Extend moves the limit at which the guard ends the command if this process can't.
func (c *Child) Extend(limit Limit) { c.guard.extend(limit) }

// End asks the command, and all that it started, to end, and forces it at a moment.
func (c *Child) End(until time.Time) {
	c.ending.Store(true)
	c.guard.kill(until)
	c.Signal(syscall.SIGTERM)
	c.Signal(syscall.SIGCONT)
	timer := time.AfterFunc(time.Until(until), c.Kill)
	go func() {
		<-c.done
		timer.Stop()
	}()
}

// Kill ends the command and all that it started, as a crash would.
func (c *Child) Kill() { c.Signal(syscall.SIGKILL) }

// Close ends the guard, after Done. After End it waits until nothing is left of what the command started, either.
func (c *Child) Close() { c.guard.close(c.ending.Load()) }

// CannotRun is the exit code that shells have for a command that couldn't be started.
func CannotRun(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return 127
	}
	return 126
}

// terminal is the one that this process is in front of.
type terminal struct {
	fd  int
	own int // our process group
}

// controlling returns the terminal that a file is, if we are in front of it.
func controlling(file any) *terminal {
	f, ok := file.(*os.File)
	if !ok || f == nil {
		return nil
	}
	t := &terminal{int(f.Fd()), unix.Getpgrp()}
	if t.front() != t.own {
		return nil
	}
	return t
}

// front is the process group that is in front of the terminal, 0 if there is no telling.
func (t *terminal) front() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// takeBack puts us in front again, if the command's group is there, or one that is gone. Otherwise we are in the background, and the shell, or another of its jobs,
// keeps its place: a shell that loses it ends.
func (t *terminal) takeBack(command int) {
	if t == nil {
		return
	}
	if front := t.front(); front == command || errors.Is(syscall.Kill(-front, 0), syscall.ESRCH) {
		t.give(t.own)
	}
}

// give puts a process group in front of the terminal.
func (t *terminal) give(group int) {
	ttou.Do(ignoreTTOU)
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

//go:build unix

// Package child runs a command that must not work for longer than it is allowed to: until a limit that the caller keeps moving. A second process, the guard, is
// there before the command, starts it, and is its parent:
//
//	lockdog ──▶ guard ──▶ command ──▶ what it starts, wherever that goes
//	   ▲──────────▲ a socket: limits and signals down, what becomes of the command up
//
// Each of the three is a process group of its own, in one session: what the terminal or a shell sends to one isn't for the others. The guard is told the first
// limit before it starts the command, which it doesn't when that is over. At the limit it kills the command and all that this has started, whatever became of
// lockdog. A limit, once reached, doesn't move, and there is no grace after it.
//
// On Linux the guard is the reaper of the command's orphans (PR_SET_CHILD_SUBREAPER), and lockdog that of the guard's. So all that the command has started is
// below one of the two, also what left its process group or its session, and none is left when there is no child any more.
//
//	what happens                    what follows
//	the command ends                the guard says how. What still runs in the background runs on, and without the lock
//	lockdog is killed               the guard asks the command to end, and kills it after a grace, at the limit at the latest
//	lockdog is stopped, starved     the guard asks it to end at Limit.Ask, and kills it at Limit.Kill
//	the guard is killed             the kernel kills the command (PR_SET_PDEATHSIG), and lockdog what that has started. Not replaced: only a parent can do all this
//	the guard is stopped            lockdog has it go on, at once
//	both are killed                 the kernel kills the command. Nobody kills what it has started
//	both are stopped                nothing, until one of them goes on
//	the machine stands still        whatever is over by then is killed at once when it goes on
//	it ends while it is ended       the guard ends when nothing is left of it. If it can't be killed (it hangs in the kernel), Close says so
//
// On other systems nobody adopts orphans and no death is passed on: what left the command's process group is not ended, and if the guard is killed, lockdog ends the
// group; if both are, nobody does.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stopWithin = time.Second            // how long it takes at most until a process that gets SIGTSTP has stopped
	helpAfter  = 500 * time.Millisecond // when a guard that hasn't ended what is to be dead is helped
	goneWithin = time.Second            // after that: what is left then can't be killed
	leftWithin = 10 * time.Second       // the same where nothing had to end, and so nothing but the guard should be left
)

// Limit is when a command is asked to end, and when it is forced.
type Limit struct{ Ask, Kill time.Time }

// ErrTooLate is why a command wasn't started: the limit was over.
var ErrTooLate = errors.New("the time that it had was over before it began")

// Child is a command that runs below a guard.
type Child struct {
	pid      int       // also its process group's
	terminal *terminal // nil where it has none
	resumed  func() bool
	guard    *exec.Cmd
	others   map[int]bool // processes below this one that aren't the guard's: a script may have started some before it became this program
	done     chan struct{}
	gone     chan struct{} // the guard has ended, and what it left behind
	status   syscall.WaitStatus
	orphaned bool // the guard was killed
	asked    bool // before the command ended it was asked to

	mu     sync.Mutex
	link   *link
	ending bool
	killAt time.Time // with ending
}

// Start starts a command. Where stdin is the terminal that this process is in front of, the command is put in front of it: it reads from it, and Ctrl-C and Ctrl-Z
// reach it alone. If it is stopped, so is this process; when that goes on, resumed reports whether the command may, too.
//
// title is what the list of processes says of the guard, before the command. limit is the first one: see Extend. The error is what starting the command gives, or
// ErrTooLate.
func Start(cmd *exec.Cmd, title string, limit Limit, resumed func() bool) (*Child, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	adoptOrphans()
	c := &Child{
		terminal: controlling(cmd.Stdin, unix.Getpgrp()), resumed: resumed, others: make(map[int]bool), done: make(chan struct{}), gone: make(chan struct{}),
	}
	for _, pid := range descendants(nil) {
		c.others[pid] = true
	}
	if err := c.startGuard(cmd, title, limit); err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	dead := make(chan syscall.WaitStatus, 1)
	go func() { dead <- waitForGuard(c.guard.Process.Pid) }()
	first, err := c.link.read()
	if err != nil || first.what != eventStarted {
		<-dead
		c.link.close()
		c.terminal.takeBack(c.pid)
		switch {
		case err != nil:
			c.killOrphans() // the command may have begun
			return nil, errors.New("its guard was killed")
		case first.what == eventTooLate:
			return nil, ErrTooLate
		}
		return nil, &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: syscall.Errno(first.a)}
	}
	c.pid = int(first.a)
	go c.hear(dead)
	return c, nil
}

// startGuard starts the guard, which starts the command.
func (c *Child) startGuard(cmd *exec.Cmd, title string, limit Limit) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ours, theirs, err := newLink()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(theirs) }()
	order := guardOrder{fd: theirs, ask: moment(limit.Ask), kill: moment(limit.Kill), foreground: c.terminal != nil, path: cmd.Path}
	c.link, c.guard = ours, &exec.Cmd{
		Path: self, Args: append([]string{title}, cmd.Args...), Env: append(cmd.Environ(), order.env()),
		Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := c.guard.Start(); err != nil {
		ours.close()
		return err
	}
	return nil
}

// waitForGuard waits until the guard has ended. If somebody stops it, it is to go on: nobody else ends the command.
func waitForGuard(pid int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && status.Stopped():
			_ = syscall.Kill(pid, syscall.SIGCONT)
		default:
			return status
		}
	}
}

// hear does what the guard's reports ask for, until the guard has ended.
func (c *Child) hear(dead <-chan syscall.WaitStatus) {
	ended := false
	for {
		m, err := c.link.read()
		if err != nil {
			break
		}
		switch m.what {
		case eventStopped:
			c.stopToo(syscall.Signal(m.a))
		case eventEnded:
			ended, c.asked = true, m.b != 0
			c.end(syscall.WaitStatus(m.a))
		}
	}
	<-dead
	c.link.close()
	c.mu.Lock()
	ending := c.ending
	c.mu.Unlock()
	if !ended { // the kernel is killing it
		c.orphaned = true
		c.end(syscall.WaitStatus(syscall.SIGKILL))
	}
	if ending || !ended {
		if !adopts {
			_ = syscall.Kill(-c.pid, syscall.SIGKILL)
		}
		c.killOrphans()
	}
	close(c.gone)
}

func (c *Child) end(status syscall.WaitStatus) {
	c.status = status
	c.terminal.takeBack(c.pid)
	close(c.done)
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

// Orphaned reports whether the command was killed because its guard was, after Done.
func (c *Child) Orphaned() bool { return c.orphaned }

// Asked reports whether the command was asked to end before it did, by End or at its limit, after Done. What it has started may go on: call End
// if nobody has, and Close waits until that is dead, too.
func (c *Child) Asked() bool { return c.asked }

// Signal sends a signal to the command and all that it started in its process group, unless the command has ended.
func (c *Child) Signal(sig syscall.Signal) { c.order(message{orderSignal, int64(sig), 0}) }

// Extend moves the limit.
func (c *Child) Extend(limit Limit) {
	c.order(message{orderExtend, moment(limit.Ask), moment(limit.Kill)})
}

// End asks the command, and all that it started, to end, and forces it at a moment, or at its limit if that is sooner.
func (c *Child) End(until time.Time) {
	c.mu.Lock()
	c.ending, c.killAt = true, until
	c.mu.Unlock()
	c.order(message{orderEnd, moment(until), 0})
	timer := time.AfterFunc(time.Until(until)+helpAfter, func() { _ = c.guard.Process.Kill() }) // and the kernel kills the command
	go func() {
		<-c.gone
		timer.Stop()
	}()
}

// order sends one to the guard.
func (c *Child) order(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link.write(m)
}

// Close ends the guard, after Done. After End, or if the guard was killed, it waits until nothing is left of what the command started, either. It reports false if
// something isn't dead in time: it can't be killed, or has no CPU to die.
func (c *Child) Close() bool {
	c.mu.Lock()
	ending := c.ending
	wait := max(time.Until(c.killAt)+helpAfter, 0) + goneWithin
	if !ending {
		wait = leftWithin
		_ = c.guard.Process.Kill()
	}
	c.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-c.gone:
		return true
	case <-late.C:
		if ending || c.orphaned {
			c.kill() // the guard and this process may only have had no CPU for it, and nobody else will
		}
		return false
	}
}

// killOrphans kills what the guard has left behind, when it has ended, until nothing is left.
func (c *Child) killOrphans() {
	if !adopts {
		return
	}
	for {
		_, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		left := c.kill()
		if errors.Is(err, syscall.ECHILD) || len(c.others) > 0 && left == 0 {
			return
		}
		time.Sleep(killPause)
	}
}

// kill kills all that is below this process but for the others, and returns how many there were.
func (c *Child) kill() int {
	left := descendants(c.others)
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return len(left)
}

// CannotRun is the exit code that shells have for a command that couldn't be started.
func CannotRun(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return 127
	}
	return 126
}

// guardOrder is what a guard is told in its environment.
type guardOrder struct {
	fd         int   // of its end of the socket
	ask, kill  int64 // the first limit, by its clock
	foreground bool  // the command is to be in front of the terminal
	path       string
}

func (o *guardOrder) env() string {
	return fmt.Sprintf("%s=%d %d %d %t %s", guardEnv, o.fd, o.ask, o.kill, o.foreground, o.path)
}

func parseGuardOrder(text string) (o guardOrder, err error) {
	words := strings.SplitN(text, " ", 5)
	if len(words) < 5 || words[4] == "" {
		return o, strconv.ErrSyntax
	}
	var errs [4]error
	o.fd, errs[0] = strconv.Atoi(words[0])
	o.ask, errs[1] = strconv.ParseInt(words[1], 10, 64)
	o.kill, errs[2] = strconv.ParseInt(words[2], 10, 64)
	o.foreground, errs[3] = strconv.ParseBool(words[3])
	o.path = words[4]
	return o, errors.Join(errs[:]...)
}

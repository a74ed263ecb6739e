//go:build unix

// Package child runs a command that must not run beyond a time, the limit. The caller moves the limit as long as the
// command may run. A second process, the guard, starts the command as its child:
//
//	lockdog ──▶ guard ──▶ command ──▶ what it starts, in any process group or session
//	   ▲──────────▲ a socket: limits and signals to the guard, what happens to the command to lockdog
//
// The guard gets the first limit before it starts the command. It doesn't start the command if that limit has passed.
// At the limit it kills the command and everything that the command has started, whatever happens to lockdog, unless
// the command has ended by itself before. A limit that has been reached can't be moved, and there is no grace after it.
//
// At a terminal, all three are in one process group, as without lockdog: the command may read from the terminal, and
// Ctrl-C and Ctrl-Z reach it, and the script or the pipeline around lockdog. If lockdog gets a signal and the guard
// doesn't, the signal was sent to lockdog alone. Then the guard passes it on to the command. Without a terminal each of
// the three has its own process group, so that a signal to the group of one doesn't reach the others.
//
// On Linux the guard adopts the command's orphans (PR_SET_CHILD_SUBREAPER), and lockdog those of the guard. So
// everything that the command has started is a descendant of one of the two, even if it has left the process group or
// the session. When neither of them has a child any more, nothing is left.
//
//	what happens                   result
//	the command ends               the guard reports how. Its background processes continue, without the lock
//	lockdog is killed              the guard asks the command to end, and kills it after a grace, at the limit at the
//	                               latest
//	lockdog is stopped or starved  the guard asks the command to end 0.1 s after Limit.Ask (slack), and kills it at
//	                               Limit.Kill
//	the guard is killed            the kernel kills the command (PR_SET_PDEATHSIG), and lockdog kills what it started.
//	                               There is no new guard: only a parent can guard
//	the guard is stopped           lockdog continues it at once
//	both are killed                the kernel kills the command. Nobody kills what it has started
//	both are stopped               nothing, until one of them continues
//	the machine stands still       when it continues, what is past its limit is killed within a second (lookAtClock)
//	the command must end           the guard ends when nothing is left of it. If something can't be killed (it hangs
//	                               in the kernel), Close says so
//
// On other systems nobody adopts orphans, and the kernel doesn't kill the command when the guard dies. So a process
// that has left the command's process group isn't ended. If the guard is killed, lockdog ends the group; if both are
// killed, nobody does. At a terminal of such a system, the command has its own session: it can read from the terminal
// if that is its stdin, but can't open /dev/tty, and Ctrl-Z doesn't stop it. The same goes for a Linux whose /proc
// doesn't list children.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	helpAfter  = 500 * time.Millisecond // from killAt until End kills the guard, if something that must end is left
	goneWithin = time.Second            // after helpAfter, until Close says that what is left can't be killed
	leftWithin = 10 * time.Second       // the same if End wasn't called: as a rule, only the guard is left
)

// Limit is when a command is asked to end, and when it is killed.
type Limit struct{ Ask, Kill time.Time }

// errGuard means that the guard, which is this program, couldn't be started.
var errGuard = errors.New("can't start the guard")

// ErrTooLate means that the command wasn't started because the limit was over.
var ErrTooLate = errors.New("the time that it had was over before it began")

// Child is a command that runs below a guard.
type Child struct {
	pid      int       // of the command
	terminal *terminal // of our session, nil for none
	guard    *exec.Cmd
	// others are the descendants that this process had before it started the guard. A script started them, and then
	// replaced itself with this program (exec).
	others   map[int]bool
	done     chan struct{}
	gone     chan struct{} // closed when the guard has ended and, after End or if Orphaned, all processes that it left
	status   syscall.WaitStatus
	orphaned bool // the guard was killed before it reported the end of the command
	asked    bool // see Asked

	mu     sync.Mutex
	link   *link
	ending bool
	killAt time.Time // if ending
}

// Start starts a command. title precedes the command in the list of processes, in the guard's entry. limit is the first
// limit: see Extend. The error is ErrTooLate, or one of starting the guard or the command.
func Start(cmd *exec.Cmd, title string, limit Limit) (*Child, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	adoptOrphans()
	c := &Child{
		terminal: openTerminal(), others: make(map[int]bool), done: make(chan struct{}), gone: make(chan struct{}),
	}
	for _, pid := range descendants(nil) {
		c.others[pid] = true
	}
	if err := c.startGuard(cmd, title, limit); err != nil {
		return nil, fmt.Errorf("%w: %w", errGuard, err)
	}
	dead := make(chan syscall.WaitStatus, 1)
	go func() { dead <- waitForGuard(c.guard.Process.Pid) }()
	first, err := c.link.read()
	if err != nil || first.What != eventStarted {
		<-dead
		c.link.close()
		c.terminal.restore(false)
		switch {
		case err != nil:
			c.killOrphans() // the command may have been started
			return nil, errors.New("its guard was killed")
		case first.What == eventTooLate:
			return nil, ErrTooLate
		}
		return nil, &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: syscall.Errno(first.A)}
	}
	c.pid = int(first.A)
	go c.hear(dead)
	return c, nil
}

// startGuard starts the guard, which starts the command.
func (c *Child) startGuard(cmd *exec.Cmd, title string, limit Limit) error {
	self, err := ownExecutable()
	if err != nil {
		return err
	}
	ours, theirs, err := newLink()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(theirs) }()
	order := guardOrder{
		fd: theirs, ask: moment(limit.Ask), kill: moment(limit.Kill), group: groupOfCommand(c.terminal), path: cmd.Path,
	}
	c.link, c.guard = ours, &exec.Cmd{
		Path: self, Args: append([]string{title}, cmd.Args...), Env: append(cmd.Environ(), order.env()),
		Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: order.group != groupShared},
	}
	// In a shared group, signals from the terminal may reach the guard before it can handle them. Ctrl-Z before its
	// exec would stop it while this process waits for that exec, and can't be stopped itself.
	if err := whileBlocked(stayed, c.guard.Start); err != nil {
		ours.close()
		return err
	}
	return nil
}

// waitForGuard waits until the guard has ended. It continues a stopped guard: nothing else would end the command in
// time.
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

// hear handles the guard's messages until the guard has ended, and then what the guard has left.
func (c *Child) hear(dead <-chan syscall.WaitStatus) {
	ended := false
	for {
		m, err := c.link.read()
		if err != nil {
			break
		}
		if m.What == eventEnded {
			ended, c.asked = true, m.B != 0
			c.end(syscall.WaitStatus(m.A))
		}
	}
	<-dead
	c.link.close()
	c.mu.Lock()
	ending := c.ending
	c.mu.Unlock()
	if !ended { // the guard was killed, so the kernel kills the command, or this function kills its group
		c.orphaned = true
		c.end(syscall.WaitStatus(syscall.SIGKILL))
	}
	if ending || !ended {
		if !adopts {
			_ = syscall.Kill(-c.pid, syscall.SIGKILL)
		}
		c.killOrphans()
	}
	c.terminal.restore(c.asked || c.orphaned)
	close(c.gone)
}

func (c *Child) end(status syscall.WaitStatus) {
	c.status = status
	close(c.done)
}

// Done is closed when the command has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// ExitCode returns the command's exit code, or 128 plus the number of the signal that ended it. Call it after Done.
func (c *Child) ExitCode() int {
	if c.status.Signaled() {
		return 128 + int(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// Orphaned reports whether the command was killed because the guard was killed. Call it after Done.
func (c *Child) Orphaned() bool { return c.orphaned }

// Asked reports whether the command was asked to end, by End or at its limit, before it ended. If Orphaned reports
// true, that isn't known, and Asked reports false. Call Asked after Done. If it reports true, processes that the
// command has started may still run. So call End, unless that was done: then Close waits for them too.
func (c *Child) Asked() bool { return c.asked }

// Signal passes a signal that this process has got to the command and its process group, unless the command has ended,
// or has got the signal too because it is in our process group.
func (c *Child) Signal(sig syscall.Signal) { c.order(message{orderSignal, int64(sig), 0}) }

// Extend moves the limit, unless it was reached, or the command was asked to end.
func (c *Child) Extend(limit Limit) {
	c.order(message{orderExtend, moment(limit.Ask), moment(limit.Kill)})
}

// End asks the command, and everything that it has started, to end. What is left is killed at killAt, or at Limit.Kill
// if that is earlier.
func (c *Child) End(killAt time.Time) {
	c.mu.Lock()
	c.ending, c.killAt = true, killAt
	c.mu.Unlock()
	c.order(message{orderEnd, moment(killAt), 0})
	// The guard's death makes the kernel kill the command. On systems other than Linux, hear kills the command's group.
	timer := time.AfterFunc(time.Until(killAt)+helpAfter, func() { _ = c.guard.Process.Kill() })
	go func() {
		<-c.gone
		timer.Stop()
	}()
}

// order sends an order to the guard.
func (c *Child) order(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link.write(m)
}

// Close ends the guard. Call it after Done. After End, or if Orphaned reports true, it also waits until nothing is left
// of what the command started. It reports false if a process doesn't die in time: it can't be killed, or gets no CPU.
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
			c.kill() // the guard and this process may have had too little CPU; nobody else kills what is left
		}
		return false
	}
}

// killOrphans kills what the guard has left until nothing is left. The guard must have ended. Where nobody adopts
// orphans, killOrphans does nothing.
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

// kill kills all descendants of this process, except c.others and their descendants. It returns how many there were.
func (c *Child) kill() int {
	left := descendants(c.others)
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return len(left)
}

// CannotRun returns the exit code that shells use for a command that couldn't be started.
func CannotRun(err error) int {
	if !errors.Is(err, errGuard) && (errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist)) {
		return 127
	}
	return 126
}

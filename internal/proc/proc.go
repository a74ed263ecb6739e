// Package proc starts child processes that do not outlive their parent, and reaps them as soon as they end. The load test and
// the tests start theirs with it.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a running child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was reaped
	err  error         // how; set before done
}

// Start starts cmd in our own process group, so that Ctrl-C ends both. Where the kernel can, it ends the child when this process is
// gone, however that happened.
func Start(cmd *exec.Cmd) (*Process, error) { return start(cmd, false) }

// StartApart starts cmd in a process group of its own, so that Ctrl-C reaches this program alone, which then ends its children
// in their order. Else it is like Start.
func StartApart(cmd *exec.Cmd) (*Process, error) { return start(cmd, true) }

func start(cmd *exec.Cmd, apart bool) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = diesWithParent()
	cmd.SysProcAttr.Setpgid = apart
	started := make(chan error, 1)
	go func() {
		// The kernel ties "dies with its parent" to the thread that forked, so that one has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("start %s: %w", cmd.Path, err)
			return
		}
		started <- nil
		p.err = cmd.Wait()
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and was reaped; from then on its exec.Cmd says how it ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Signal sends it a signal. Once it has ended the error matches os.ErrProcessDone.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Wait waits for the end, for that long at most, and then forces it. The error is how the process ended.
func (p *Process) Wait(patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.err
	case <-timer.C:
		return errors.Join(fmt.Errorf("%s did not end within %v", p.cmd.Path, patience), p.Kill())
	}
}

// Kill ends it as a crash would, also while it is stopped, and waits until it is gone. Killing an ended process is no error.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %d: %w", p.PID(), err)
	}
	<-p.done
	return nil
}

// Package proc starts child processes, and reaps them when they end. On Linux they don't outlive their parent. The load
// test and the tests use it.
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
	done chan struct{} // closed when the child has ended and was reaped
	err  error         // of cmd.Wait; set before done is closed
}

// Start starts cmd. On Linux the kernel kills the child when this process ends in any way. Ctrl-C ends both, unless cmd
// says Setpgid: then it reaches only this program, which can end its children in the right order.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	dieWithParent(cmd.SysProcAttr)
	started := make(chan error, 1)
	go func() {
		// The kernel kills the child when the thread that forked it ends, so that thread must stay.
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

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended and was reaped. After that, its exec.Cmd says how it
// ended.
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

// Signal sends a signal. After the process has ended, the error matches os.ErrProcessDone.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Wait waits for the end of the process. If patience is over before, it kills the process. The error says how the
// process ended, nil if it succeeded.
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

// Kill ends the process as a crash would, even if it is stopped, and waits until it is gone. It is no error if the
// process has ended.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %d: %w", p.PID(), err)
	}
	<-p.done
	return nil
}

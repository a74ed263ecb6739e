// Package proc starts the processes of the load test, and sees to it that none outlives it.
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

// Process is a running child, reaped as soon as it ends.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; set before done
}

// Start starts cmd in a process group of its own, so that Ctrl-C reaches this program alone, which then ends the others in
// their order. Where the kernel can, it ends the child when this process is gone.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = attributes()
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

// Ended says whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Signal sends it a signal.
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

// Kill ends it at once, also while it is stopped, and waits until it is gone. An ended process is no error.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %d: %w", p.PID(), err)
	}
	<-p.done
	return nil
}

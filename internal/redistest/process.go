package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is one child process. It is reaped as soon as it ends, so that
// done tells at once when a server dies by itself.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was reaped
}

func startProcess(name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.SysProcAttr = diesWithParent()
	started := make(chan error, 1)
	go func() {
		// The kernel ties "dies with its parent" to the thread that forked, so
		// that thread has to stay for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		if err := p.cmd.Start(); err != nil {
			started <- fmt.Errorf("redistest: start %s: %w", name, err)
			return
		}
		started <- nil
		_ = p.cmd.Wait() // how a server ended is told by its log
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// kill ends the process as a crash would, also when it is paused, and waits
// until it is gone. Killing an ended process is no error.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("redistest: kill %d: %w", p.pid(), err)
	}
	<-p.done
	return nil
}

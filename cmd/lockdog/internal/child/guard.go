//go:build unix

package child

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// guardEnv makes a process the guard of a process group: "<group> <ask> <kill>", the limit in ns of its clock.
const guardEnv = "LOCKDOG_GUARD"

// slack is how much later than the program the guard asks the command to end: where the program can, it is the one to do so.
const slack = 100 * time.Millisecond

// ttou makes changes of the terminal's process group possible from behind it.
var ttou sync.Once

func ignoreTTOU() { signal.Ignore(syscall.SIGTTOU) }

// An order to a guard is a limit: when to ask the command to end, 0 if it was asked, and when to force it. Both are times of the guard's clock, in ns.
const orderSize = 16

// orderWithin bounds an order to a guard that doesn't read: it was stopped, and the pipe is full.
const orderWithin = 100 * time.Millisecond

// guard is the program's end of the pipe to its guard.
type guard struct {
	group int
	done  chan struct{} // closed when there is none, and will be none

	mu     sync.Mutex
	cmd    *exec.Cmd
	pipe   io.WriteCloser
	limit  Limit // the last order; no Ask: the command was asked
	closed bool
}

func startGuard(group int, limit Limit) (*guard, error) {
	g := &guard{group: group, done: make(chan struct{}), limit: limit}
	if err := g.start(); err != nil {
		return nil, err
	}
	go g.keep()
	return g, nil
}

// start starts a process that knows the last order.
func (g *guard) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d", guardEnv, g.group, moment(g.limit.Ask), moment(g.limit.Kill)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what is sent to our process group, or by our terminal, isn't for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.cmd, g.pipe = cmd, pipe
	return nil
}

// keep starts another guard when somebody has killed one.
func (g *guard) keep() {
	defer close(g.done)
	for killed := true; killed; {
		_ = g.cmd.Wait() // what matters is how it ended
		status, ok := g.cmd.ProcessState.Sys().(syscall.WaitStatus)
		g.mu.Lock()
		killed = ok && status.Signaled() && !g.closed && g.start() == nil
		g.mu.Unlock()
	}
}

// moment is a time by the clock of the guard, 0 for none.
func moment(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return clock() + int64(time.Until(t))
}

func (g *guard) kill(at time.Time) { g.extend(Limit{Kill: at}) }

// close ends the guard: at once, unless it is to see to the command's end.
func (g *guard) close(seeToIt bool) {
	if seeToIt {
		g.mu.Lock()
		late := time.NewTimer(time.Until(g.limit.Kill) + time.Second) // somebody has stopped it
		g.mu.Unlock()
		defer late.Stop()
		select {
		case <-g.done:
			return
		case <-late.C:
		}
	}
	g.mu.Lock()
	g.closed = true
	_ = g.cmd.Process.Kill() // an order is nothing to a guard that was stopped
	g.mu.Unlock()
	<-g.done
}

// extend orders a limit. A guard that is gone can't be told: the next one will know it.
func (g *guard) extend(limit Limit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = limit
	var text [orderSize]byte
	binary.LittleEndian.PutUint64(text[:], uint64(moment(limit.Ask)))
	binary.LittleEndian.PutUint64(text[8:], uint64(moment(limit.Kill)))
	if pipe, ok := g.pipe.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		_ = pipe.SetWriteDeadline(time.Now().Add(orderWithin))
	}
	_, _ = g.pipe.Write(text[:])
}

// Guard is the main function of a process that is a guard. It reports false in any other.
func Guard() bool {
	text := os.Getenv(guardEnv)
	if text == "" {
		return false
	}
	if err := runGuard(text, os.Stdin); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "lockdog: guard:", err)
	}
	return true
}

type order struct{ ask, kill int64 }

func runGuard(text string, orders io.Reader) error {
	g := &guarding{}
	var first order
	if n, err := fmt.Sscanf(text, "%d %d %d", &g.group, &first.ask, &first.kill); err != nil || n != 3 || g.group <= 1 {
		return fmt.Errorf("%s=%q is nothing that lockdog sets", guardEnv, text)
	}
	g.obey(first)
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) // it ends with what it guards
	heard := make(chan order)
	go func() {
		defer close(heard)
		var text [orderSize]byte
		for {
			if _, err := io.ReadFull(orders, text[:]); err != nil {
				return
			}
			heard <- order{int64(binary.LittleEndian.Uint64(text[:])), int64(binary.LittleEndian.Uint64(text[8:]))}
		}
	}()
	for {
		wait := time.NewTimer(g.next())
		select {
		case o, ok := <-heard:
			if !ok {
				g.abandoned()
				heard = nil
			} else {
				g.obey(o)
			}
		case <-wait.C:
			if g.act() {
				return nil
			}
		}
		wait.Stop()
	}
}

// guarding is what a guard knows. Its times are those of clock, in ns.
type guarding struct {
	group  int
	askAt  int64 // 0: it isn't to be asked, or was
	killAt int64
	grace  int64 // between the two
}

// next is how long until it has to act, or to look whether the command has ended. It is never long: while a machine sleeps, timers stand still and the clock
// goes on.
func (g *guarding) next() time.Duration {
	at, most := g.killAt, 20*time.Millisecond
	if g.askAt != 0 {
		at, most = min(at, g.askAt), time.Second
	}
	return time.Duration(min(max(at-clock(), 0), int64(most)))
}

func (g *guarding) obey(o order) {
	g.askAt, g.killAt = o.ask, o.kill
	if o.ask != 0 {
		g.askAt = min(o.ask+int64(slack), o.kill)
		g.grace = o.kill - o.ask
	}
}

// abandoned is called when the program is gone: its lock ends at the deadline, and nobody extends it.
func (g *guarding) abandoned() {
	g.askAt = clock()
	g.killAt = min(g.killAt, g.askAt+g.grace)
}

// act does what is due. It reports whether that was the last of it.
func (g *guarding) act() bool {
	now := clock()
	if g.killAt <= now {
		g.signal(syscall.SIGKILL)
		return true
	}
	if g.askAt != 0 && g.askAt <= now {
		g.askAt = 0
		g.signal(syscall.SIGTERM)
		g.signal(syscall.SIGCONT)
	}
	return !g.alive()
}

func (g *guarding) signal(sig syscall.Signal) { _ = syscall.Kill(-g.group, sig) }

func (g *guarding) alive() bool { return syscall.Kill(-g.group, 0) == nil }

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

// guardEnv makes a process the guard of a process group: "<group> <grace, ns> <first deadline, ns of its clock>".
const guardEnv = "LOCKDOG_GUARD"

// slack is how much later than the program the guard asks the command to end: where the program can, it is the one to do so.
const slack = 100 * time.Millisecond

// ttou makes changes of the terminal's process group possible from behind it.
var ttou sync.Once

func ignoreTTOU() { signal.Ignore(syscall.SIGTTOU) }

// The orders that a guard is given, each followed by a time of its clock, in ns.
const (
	orderExtend byte = iota + 1 // ask the command to end a grace before that time, and force it then
	orderKill                   // force it then: it was asked
	orderClose                  // leave it alone
)

// guard is the program's end of the pipe to its guard.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser

	mu     sync.Mutex
	closed bool
}

func startGuard(group int, grace time.Duration, until time.Time) (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d", guardEnv, group, int64(grace), moment(until)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what is sent to our process group, or by our terminal, isn't for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &guard{cmd: cmd, pipe: pipe}, nil
}

// moment is a time by the clock of the guard.
func moment(t time.Time) int64 { return clock() + int64(time.Until(t)) }

func (g *guard) extend(until time.Time) { g.order(orderExtend, until) }
func (g *guard) kill(at time.Time)      { g.order(orderKill, at) }

// close waits for the guard's end. Unless it is to see to the command's end, it ends at once.
func (g *guard) close(seeToIt bool) {
	if !seeToIt {
		g.order(orderClose, time.Time{})
	}
	_ = g.cmd.Wait()
	g.mu.Lock()
	g.closed = true
	_ = g.pipe.Close()
	g.mu.Unlock()
}

// order sends one. A guard that is gone can't be told.
func (g *guard) order(order byte, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		var text [9]byte
		text[0] = order
		binary.LittleEndian.PutUint64(text[1:], uint64(moment(at)))
		_, _ = g.pipe.Write(text[:])
	}
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

type order struct {
	what byte
	at   int64
}

func runGuard(text string, orders io.Reader) error {
	g := &guarding{}
	var first int64
	if n, err := fmt.Sscanf(text, "%d %d %d", &g.group, &g.grace, &first); err != nil || n != 3 || g.group <= 1 {
		return fmt.Errorf("%s=%q is nothing that lockdog sets", guardEnv, text)
	}
	g.obey(order{orderExtend, first})
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) // it ends with what it guards
	heard := make(chan order)
	go func() {
		defer close(heard)
		var text [9]byte
		for {
			if _, err := io.ReadFull(orders, text[:]); err != nil {
				return
			}
			heard <- order{text[0], int64(binary.LittleEndian.Uint64(text[1:]))}
		}
	}()
	for {
		wait := time.NewTimer(g.next())
		select {
		case o, ok := <-heard:
			if !ok {
				g.abandoned()
				heard = nil
			} else if g.obey(o) {
				return nil
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
	grace  int64
	askAt  int64 // 0: it isn't to be asked, or was
	killAt int64
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

// obey reports whether the guard is to end.
func (g *guarding) obey(o order) bool {
	switch o.what {
	case orderExtend:
		g.askAt, g.killAt = o.at-g.grace+int64(slack), o.at
	case orderKill:
		g.askAt, g.killAt = 0, o.at
	case orderClose:
		return true
	}
	return false
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

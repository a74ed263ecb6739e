//go:build unix

package child

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardEnv is the environment variable that makes a process a guard: see guardOrder. The guard's arguments are those of
// the command.
const guardEnv = "LOCKDOG_GUARD"

const (
	// slack is how much later than lockdog the guard asks the command to end: it does so by itself only if lockdog
	// doesn't.
	slack = 100 * time.Millisecond
	// killPause is the time between two kills: a process that is left may have started another one.
	killPause = 5 * time.Millisecond

	// lookAtClock is the maximum time between two looks at the clock: while a machine sleeps, timers stand still but
	// the clock doesn't.
	lookAtClock = time.Second
)

// Guard runs the guard if guardEnv is set, and returns true after that. If guardEnv can't be parsed, Guard only prints
// an error, and returns true. If guardEnv isn't set, Guard returns false.
func Guard() bool {
	text, is := os.LookupEnv(guardEnv)
	if !is {
		return false
	}
	o, err := parseGuardOrder(text)
	if err != nil || len(os.Args) < 2 {
		_, _ = fmt.Fprintf(os.Stderr, "lockdog: guard: %s=%q is nothing that lockdog sets\n", guardEnv, text)
		return true
	}
	// The kernel kills the command when the thread that started it ends. So that must be this thread, which lives as
	// long as the guard.
	runtime.LockOSThread()
	keepName()
	g := &guarding{
		link: openLink(o.fd), askAt: o.ask + int64(slack), killAt: o.kill, grace: o.kill - o.ask,
		shared: o.group == groupShared, signals: stay(),
		got: make(map[syscall.Signal]int64), passAt: make(map[syscall.Signal]int64),
	}
	adoptOrphans()
	unblock(stayed) // in this thread, and so for the command
	if g.shared {
		g.awaitLockdog(o.ask)
	}
	if g.start(&o) {
		g.run()
	}
	return true
}

// guarding is the state of a guard. Its times are those of clock, in ns.
type guarding struct {
	link    *link
	command int  // its process id, and that of its process group, unless shared
	shared  bool // lockdog, this process and the command were started in one process group

	signals <-chan os.Signal
	got     map[syscall.Signal]int64 // when this process got signals that lockdog hasn't reported
	passAt  map[syscall.Signal]int64 // when to pass on signals that lockdog reported, unless this process gets them

	countFrom int64 // signals that this process got before don't count: the command may not have got them

	askAt  int64
	killAt int64
	grace  int64 // from Ask to Kill of the last limit; used when lockdog is gone

	asked    bool // the command was asked to end, or is killed: killAt can't become later any more
	ended    bool // the command has ended; what it started may continue, unless asked
	none     bool // no child is left
	orphaned bool // lockdog is gone
}

// awaitLockdog waits while lockdog is stopped, as by Ctrl-Z, but not beyond until: the command must not run while
// lockdog is stopped.
func (g *guarding) awaitLockdog(until int64) {
	for clock() < until {
		stop := false
		for len(g.signals) > 0 {
			stop = <-g.signals == syscall.SIGTSTP || stop
		}
		if stop {
			time.Sleep(slack) // lockdog is about to stop, or has continued
		} else if !isStopped(os.Getppid()) {
			return
		}
		time.Sleep(killPause)
	}
}

// start starts the command. It reports false if the limit is over or the start fails.
func (g *guarding) start(o *guardOrder) bool {
	if clock() >= o.ask {
		g.link.write(message{eventTooLate, 0, 0})
		return false
	}
	attr := diesWithParent()
	attr.Setpgid, attr.Setsid = o.group == groupOwn, o.group == groupSession
	// Otherwise the command inherits it.
	_ = os.Unsetenv(guardEnv)
	p, err := os.StartProcess(o.path, os.Args[1:], &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr,
	})
	if err != nil {
		errno := syscall.EINVAL
		_ = errors.As(err, &errno)
		g.link.write(message{eventFailed, int64(errno), 0})
		return false
	}
	// A signal that comes soon after the start may have been sent before the command existed.
	g.countFrom = clock() + int64(slack)
	g.command = p.Pid
	_ = p.Release() // reap waits for it, as for its orphans
	g.link.write(message{eventStarted, int64(g.command), 0})
	return true
}

// ending says that a child has ended.
type ending struct {
	pid    int
	status syscall.WaitStatus
}

// reap reports each end of a child, until there is no child.
func reap(ends chan<- ending) {
	defer close(ends)
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return
		default:
			ends <- ending{pid, status}
		}
	}
}

// run guards the command until it has ended, and lockdog is gone or kills this process. If the command was asked to
// end, run returns when nothing is left of it.
func (g *guarding) run() {
	orders, ends := make(chan message), make(chan ending)
	go func() {
		defer close(orders)
		for {
			m, err := g.link.read()
			if err != nil {
				return
			}
			orders <- m
		}
	}()
	go reap(ends)
	for !g.over() {
		wait := time.NewTimer(g.next())
		select {
		case o, ok := <-orders:
			if !ok {
				g.noteOrphaned()
				orders = nil
			} else {
				g.obey(o)
			}
		case e, ok := <-ends:
			if !ok {
				g.none, ends = true, nil
			} else {
				g.note(e)
			}
		case came := <-g.signals:
			g.noteSignal(came.(syscall.Signal)) // the only kind of os.Signal
		case <-wait.C:
		}
		wait.Stop()
		g.act()
	}
}

// over reports whether the guard may end by itself: there is nothing left to guard.
func (g *guarding) over() bool {
	switch {
	case !g.ended:
		return false
	case !g.asked:
		return g.orphaned // otherwise lockdog ends the guard
	case adopts:
		return g.none
	default:
		return syscall.Kill(-g.command, 0) != nil
	}
}

// next returns the time until the guard must act or look at the clock.
func (g *guarding) next() time.Duration {
	at, least := g.killAt, killPause
	if !g.asked {
		at, least = min(at, g.askAt), 0
	}
	if g.ended && !g.asked {
		return lookAtClock
	}
	for _, pass := range g.passAt {
		at = min(at, pass)
	}
	return min(max(time.Duration(at-clock()), least), lookAtClock)
}

func (g *guarding) obey(o message) {
	switch o.What {
	case orderExtend:
		if !g.asked {
			g.askAt, g.killAt, g.grace = o.A+int64(slack), o.B, o.B-o.A
		}
	case orderEnd:
		g.killAt = min(g.killAt, o.A)
		g.ask()
	case orderSignal:
		g.pass(syscall.Signal(o.A))
	}
}

// noteOrphaned handles the end of lockdog: nobody extends the limit any more.
func (g *guarding) noteOrphaned() {
	g.orphaned = true
	if g.ended || g.asked {
		return
	}
	g.killAt = min(g.killAt, clock()+g.grace)
	g.ask()
}

func (g *guarding) note(e ending) {
	if e.pid != g.command {
		return
	}
	g.ended = true
	var asked int64
	if g.asked {
		asked = 1
	}
	g.link.write(message{eventEnded, int64(e.status), asked})
}

// act passes signals on to the command and its process group, asks the command and all that it has started to end, or
// kills them, if that is due. It does nothing if the command has ended without being asked.
func (g *guarding) act() {
	if g.ended && !g.asked {
		return
	}
	now := clock()
	for sig, at := range g.passAt {
		if at <= now {
			g.passNow(sig)
		}
	}
	if g.killAt <= now {
		g.asked = true
		g.signal(syscall.SIGKILL)
	} else if !g.asked && g.askAt <= now {
		g.ask()
	}
}

// ask asks the command, and everything that it has started, to end.
func (g *guarding) ask() {
	g.asked = true
	if g.killAt > clock() { // otherwise act kills it
		g.signal(syscall.SIGTERM)
		g.signal(syscall.SIGCONT)
	}
}

// signal sends a signal to all descendants, and to the command's process group unless that is shared.
func (g *guarding) signal(sig syscall.Signal) {
	if g.shared {
		g.signalIf(func(int) bool { return true }, sig)
		return
	}
	_ = syscall.Kill(-g.command, sig)
	g.signalIf(func(group int) bool { return group != g.command }, sig)
}

// signalIf sends a signal to each descendant whose process group is meant.
func (g *guarding) signalIf(meant func(group int) bool, sig syscall.Signal) {
	for _, pid := range descendants(nil) {
		if group, err := unix.Getpgid(pid); err == nil && meant(group) {
			_ = syscall.Kill(pid, sig)
		}
	}
}

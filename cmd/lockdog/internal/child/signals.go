//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How the guard passes on the signals that lockdog gets.

// A signal that lockdog reports counts as sent to the whole process group if the guard gets it within getsWithin after
// the report, or got it within gotWithin before. The time in which lockdog was stopped doesn't count.
const getsWithin, gotWithin = 250 * time.Millisecond, time.Second

// stayed are the signals that stay handles. They are blocked when the guard starts.
var stayed = []syscall.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGCONT,
}

// stay makes the guard survive the usual signals that end or stop a process: it must outlive the command. The channel
// gets these signals. Notify, unlike Ignore, isn't inherited by the command.
func stay() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	for _, sig := range stayed {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	return signals
}

// pass passes a signal that lockdog has got to the command and its process group. If that is lockdog's group, pass
// first waits, for getsWithin at most: the terminal or a shell may have sent the signal to the whole group.
func (g *guarding) pass(sig syscall.Signal) {
	switch at, got := g.got[sig]; {
	case !g.together():
		g.passNow(sig)
	case got && clock()-at < int64(gotWithin):
		g.matched(sig)
	case g.passAt[sig] == 0:
		g.passAt[sig] = clock() + int64(getsWithin)
	}
}

// noteSignal notes a signal that this process has got.
func (g *guarding) noteSignal(sig syscall.Signal) {
	switch {
	case clock() < g.countFrom:
		if sig == syscall.SIGTSTP {
			_ = syscall.Kill(g.command, syscall.SIGTSTP)
		}
	case sig == syscall.SIGCONT: // lockdog may have been stopped, and reports only now the signals that came meanwhile
		for sig := range g.got {
			g.got[sig] = clock()
			if g.passAt[sig] != 0 {
				g.matched(sig)
			}
		}
	case g.passAt[sig] != 0 && g.together():
		g.matched(sig)
	default:
		g.got[sig] = clock()
	}
}

// matched is called when both lockdog and this process have got a signal: then the command has got it, too.
func (g *guarding) matched(sig syscall.Signal) {
	delete(g.got, sig)
	delete(g.passAt, sig)
	if asksToEnd(sig) && isStopped(g.command) {
		g.signalGroup(syscall.SIGCONT)
	}
}

// asksToEnd reports whether a signal asks a process to end. A stopped process gets such a signal when it continues.
func asksToEnd(sig syscall.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP || sig == syscall.SIGQUIT
}

// together reports whether the command is in our process group. An interactive shell leaves that group.
func (g *guarding) together() bool {
	group, err := unix.Getpgid(g.command)
	return g.shared && err == nil && group == unix.Getpgrp()
}

func (g *guarding) passNow(sig syscall.Signal) {
	delete(g.got, sig)
	delete(g.passAt, sig)
	if g.ended {
		return
	}
	g.signalGroup(sig)
	if asksToEnd(sig) {
		g.signalGroup(syscall.SIGCONT)
	}
}

// signalGroup sends a signal to the command and its process group, but not to lockdog or this process.
func (g *guarding) signalGroup(sig syscall.Signal) {
	if g.together() {
		own := unix.Getpgrp()
		g.signalIf(func(group int) bool { return group == own }, sig)
	} else if group, err := unix.Getpgid(g.command); err == nil {
		_ = syscall.Kill(-group, sig)
	}
}

//go:build unix

package child

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ignoreTTOU ignores SIGTTOU: it would stop a background process that changes the terminal's foreground process group.
var ignoreTTOU = sync.OnceFunc(func() { signal.Ignore(syscall.SIGTTOU) })

// terminal is a terminal that had this process in its foreground when the command was started.
type terminal struct {
	fd  int
	own int // our process group
}

// controlling returns the file as a terminal. It is nil unless own, our process group, is in its foreground.
func controlling(file any, own int) *terminal {
	f, ok := file.(*os.File)
	if !ok || f == nil {
		return nil
	}
	t := &terminal{int(f.Fd()), own}
	// A process group outside our PID namespace has the number 0. If our group and the terminal's foreground group are
	// both outside, they can't be compared, and we count as in the foreground. The call fails if this isn't our
	// controlling terminal.
	if front, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil || front != t.own {
		return nil
	}
	return t
}

// front returns the foreground process group of the terminal, 0 if it isn't known.
func (t *terminal) front() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// takeBack puts us into the foreground again, if the command's group or one that is gone is there. Otherwise it changes
// nothing. Either we are there already, or the shell, or another job of the shell, is there and must stay: a shell that
// loses the foreground ends.
func (t *terminal) takeBack(command int) {
	if t == nil {
		return
	}
	if front := t.front(); front == command || errors.Is(syscall.Kill(-front, 0), syscall.ESRCH) {
		t.give(t.own)
	}
}

// give puts a process group into the foreground of the terminal.
func (t *terminal) give(group int) {
	ignoreTTOU()
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

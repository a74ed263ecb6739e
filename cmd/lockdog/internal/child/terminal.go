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

// ttou makes changes of the terminal's process group possible from behind it.
var ttou sync.Once

func ignoreTTOU() { signal.Ignore(syscall.SIGTTOU) }

// terminal is the one that this process is in front of.
type terminal struct {
	fd  int
	own int // our process group
}

// controlling returns the terminal that a file is, if we are in front of it, with that process group.
func controlling(file any, own int) *terminal {
	f, ok := file.(*os.File)
	if !ok || f == nil {
		return nil
	}
	t := &terminal{int(f.Fd()), own}
	// Both are 0 where the process group is of another PID namespace, and then at the front of our terminal, if it is one.
	if front, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil || front != t.own {
		return nil
	}
	return t
}

// front is the process group that is in front of the terminal, 0 if there is no telling.
func (t *terminal) front() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// takeBack puts us in front again, if the command's group is there, or one that is gone. Otherwise we are in the background, and the shell, or another of its jobs,
// keeps its place: a shell that loses it ends.
func (t *terminal) takeBack(command int) {
	if t == nil {
		return
	}
	if front := t.front(); front == command || errors.Is(syscall.Kill(-front, 0), syscall.ESRCH) {
		t.give(t.own)
	}
}

// give puts a process group in front of the terminal.
func (t *terminal) give(group int) {
	ttou.Do(ignoreTTOU)
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

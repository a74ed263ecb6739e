//go:build unix

package child

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the terminal of this session, and its modes before the command.
type terminal struct {
	file  *os.File
	modes *term.State
}

// openTerminal returns nil if the session has no terminal.
func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	modes, err := term.GetState(int(file.Fd()))
	if err != nil {
		_ = file.Close()
		return nil
	}
	return &terminal{file, modes}
}

// restore closes the terminal. If the command was killed, restore first resets the terminal's modes: shells do that
// only if a signal ended this process. If the foreground process group is gone, our group takes its place. If another
// group is in the foreground, the modes stay as they are.
func (t *terminal) restore(killed bool) {
	if t == nil {
		return
	}
	defer func() { _ = t.file.Close() }()
	fd, own := int(t.file.Fd()), unix.Getpgrp()
	front, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || front <= 0 || !killed { // a group outside our PID namespace has the number 0
		return
	}
	if errors.Is(syscall.Kill(-front, 0), syscall.ESRCH) {
		signal.Ignore(syscall.SIGTTOU) // it would stop us, as we are in the background
		_ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, own)
		front = own
	}
	if front == own {
		_ = term.Restore(fd, t.modes)
	}
}

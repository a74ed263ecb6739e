//go:build unix

package child

import (
	"encoding/binary"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// message goes to a guard, or comes from it.
type message struct {
	what byte
	a, b int64
}

const (
	orderExtend  byte = iota + 1 // to ask the command to end at a, and to kill it at b
	orderEnd                     // to ask it now, and to kill it at a
	orderSignal                  // to send it the signal a
	eventStarted                 // the command, with the process id a
	eventTooLate                 // to start it
	eventFailed                  // to start it, with the error number a
	eventStopped                 // by the signal a
	eventEnded                   // with the wait status a, and b is 1 if it was asked to
)

const messageSize = 17

// writeWithin bounds a message to a process that doesn't read: it was stopped, and the socket is full.
const writeWithin = 100 * time.Millisecond

// link is one end of the socket between a program and its guard.
type link struct{ file *os.File }

// farFD is a file descriptor above those that starting a process uses in between: these come right after the highest of its standard files.
const farFD = 100

// newLink returns our end, and the guard's, which the next process that is started inherits at the same number. That leaves it the files that we have
// inherited, as they are.
func newLink() (ours *link, theirs int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, 0, os.NewSyscallError("socketpair", err)
	}
	defer func() { _ = unix.Close(fds[1]) }()
	unix.CloseOnExec(fds[1])
	ours = openLink(fds[0])
	theirs, err = unix.FcntlInt(uintptr(fds[1]), unix.F_DUPFD, farFD)
	if err != nil {
		ours.close()
		return nil, 0, os.NewSyscallError("fcntl", err)
	}
	return ours, theirs, nil
}

// openLink makes a file descriptor an end that no command inherits.
func openLink(fd int) *link {
	unix.CloseOnExec(fd)
	_ = unix.SetNonblock(fd, true) // for the deadline; without it a write may take longer
	return &link{os.NewFile(uintptr(fd), "guard")}
}

func (l *link) close() { _ = l.file.Close() }

func (l *link) read() (message, error) {
	var text [messageSize]byte
	if _, err := io.ReadFull(l.file, text[:]); err != nil {
		return message{}, err
	}
	return message{text[0], int64(binary.LittleEndian.Uint64(text[1:])), int64(binary.LittleEndian.Uint64(text[9:]))}, nil
}

// write sends a message. If the other end is gone, its reader learns of it.
func (l *link) write(m message) {
	var text [messageSize]byte
	text[0] = m.what
	binary.LittleEndian.PutUint64(text[1:], uint64(m.a))
	binary.LittleEndian.PutUint64(text[9:], uint64(m.b))
	_ = l.file.SetWriteDeadline(time.Now().Add(writeWithin))
	_, _ = l.file.Write(text[:])
}

// moment is a time by the clock of guards. The clock is read first: should the machine stand still in between, the moment is early, not late.
func moment(t time.Time) int64 {
	now := clock()
	return now + int64(time.Until(t))
}

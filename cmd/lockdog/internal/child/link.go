//go:build unix

package child

import (
	"encoding/binary"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// message is an order to a guard, or an event from it. Package binary sets only exported fields.
type message struct {
	What byte
	A, B int64
}

const (
	orderExtend  byte = iota + 1 // ask the command to end at A, kill it at B
	orderEnd                     // ask the command to end now, kill it at A
	orderSignal                  // pass the signal A to the command
	eventStarted                 // the command was started, with the process id A
	eventTooLate                 // the command wasn't started: the limit was over
	eventFailed                  // the command wasn't started, because of the error number A
	eventEnded                   // the command has ended with the wait status A; B is 1 if it was asked to
)

// writeWithin bounds a write to a process that doesn't read: it is stopped, and the socket's buffer is full.
const writeWithin = 100 * time.Millisecond

// link is one end of the socket between lockdog and the guard.
type link struct{ file *os.File }

// farFD is the lowest number for the guard's end of the socket. It must be above the file descriptors that starting a
// process uses temporarily, which come directly after the standard files.
const farFD = 100

// newLink returns our end and the guard's end of a new socket. Each process that is started before the guard's end is
// closed here inherits it, at the same number. exec.Cmd.ExtraFiles would put it at 3, in place of a file that we have
// inherited at that number.
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

// openLink makes a file descriptor a link. Commands don't inherit it.
func openLink(fd int) *link {
	unix.CloseOnExec(fd)
	_ = unix.SetNonblock(fd, true) // needed for write deadlines; if it fails, a write may block longer
	return &link{os.NewFile(uintptr(fd), "guard")}
}

func (l *link) close() { _ = l.file.Close() }

func (l *link) read() (m message, err error) {
	err = binary.Read(l.file, binary.LittleEndian, &m)
	return m, err
}

// write sends a message. It ignores errors: if the other end is gone, read reports that. A message to a process that
// doesn't read is lost.
func (l *link) write(m message) {
	_ = l.file.SetWriteDeadline(time.Now().Add(writeWithin))
	_ = binary.Write(l.file, binary.LittleEndian, m)
}

// moment converts a time to the clock of guards. It reads that clock first: if the machine stands still in between, the
// result is too early, not too late.
func moment(t time.Time) int64 {
	now := clock()
	return now + int64(time.Until(t))
}

// clock returns the time in ns of a clock that all processes share.
func clock() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(clockID, &now) // never fails
	return now.Nano()
}

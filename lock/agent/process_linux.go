package agent

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// process is the process that has opened the other end of a Unix socket. The kernel tells when it has died, whoever
// still has the socket, whatever its number is to others, and whether its parent has waited for it.
type process struct {
	pid   int      // 0: it has none in the agent's PID namespace
	pidfd *os.File // readable when all of its threads have ended
}

// processAt returns the process at the other end of c.
func processAt(c net.Conn) (*process, error) {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	pidfd := -1
	if failed := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		}
		if errors.Is(err, unix.ENOPROTOOPT) && cred.Pid > 0 { // before Linux 6.5
			pidfd, err = unix.PidfdOpen(int(cred.Pid), 0)
		}
	}); failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(pidfd)
	if err := unix.SetNonblock(pidfd, true); err != nil { // so that died needs no thread
		_ = unix.Close(pidfd)
		return nil, err
	}
	return &process{int(cred.Pid), os.NewFile(uintptr(pidfd), "pidfd")}, nil
}

// died waits until the process has died. It returns false at the time of waitUntil.
func (p *process) died() bool {
	raw, err := p.pidfd.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return err == nil && n == 1
		})
	}
	return err == nil
}

// waitUntil bounds the calls of died.
func (p *process) waitUntil(t time.Time) { _ = p.pidfd.SetReadDeadline(t) }

func (p *process) close() { _ = p.pidfd.Close() }

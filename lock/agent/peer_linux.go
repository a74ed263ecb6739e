package agent

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// peer is who has opened the other end of a Unix socket.
type peer struct {
	known bool // uid is
	uid   uint32
	pid   int // 0: it has none in the agent's PID namespace
}

// peerAt returns the peer at the other end of c.
func peerAt(c net.Conn) (p peer) {
	_ = control(c, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			p = peer{true, cred.Uid, int(cred.Pid)}
		}
		return err
	})
	return p
}

// control calls f with the file descriptor of a Unix socket.
func control(c net.Conn, f func(fd int) error) error {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	if failed := raw.Control(func(fd uintptr) { err = f(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

// process is the process of a peer. The kernel tells when it has died, whoever still has the socket, whatever its
// number is to others, and whether its parent has waited for it.
type process struct {
	pidfd *os.File // readable when all of its threads have ended
}

// processAt returns the process at the other end of c. The error says why the kernel doesn't tell when it dies.
func processAt(c net.Conn, p peer) (*process, error) {
	pidfd := -1
	if err := control(c, func(fd int) (err error) {
		pidfd, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if errors.Is(err, unix.ENOPROTOOPT) && p.pid > 0 { // before Linux 6.5
			pidfd, err = unix.PidfdOpen(p.pid, 0)
		}
		return err
	}); err != nil {
		return nil, err
	}
	unix.CloseOnExec(pidfd)
	if err := unix.SetNonblock(pidfd, true); err != nil { // so that died needs no thread
		_ = unix.Close(pidfd)
		return nil, err
	}
	return &process{os.NewFile(uintptr(pidfd), "pidfd")}, nil
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

package agent

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// peer is who has opened the other end of a Unix socket. The kernel tells when its process has died, whoever still has
// the socket, whatever its number is to others, and whether its parent has waited for it.
type peer struct {
	known bool // uid is
	uid   uint32
	pid   int      // 0: it has none in the agent's PID namespace
	pidfd *os.File // readable when all of its threads have ended; nil: the kernel doesn't tell
}

// peerAt returns the peer at the other end of c. The error says why the kernel doesn't tell when it dies.
func peerAt(c net.Conn) (*peer, error) {
	p := &peer{}
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return p, errors.ErrUnsupported
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return p, err
	}
	pidfd := -1
	if failed := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		p.known, p.uid, p.pid = true, cred.Uid, int(cred.Pid)
		pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if errors.Is(err, unix.ENOPROTOOPT) && p.pid > 0 { // before Linux 6.5
			pidfd, err = unix.PidfdOpen(p.pid, 0)
		}
	}); failed != nil {
		return p, failed
	}
	if err != nil {
		return p, err
	}
	unix.CloseOnExec(pidfd)
	if err := unix.SetNonblock(pidfd, true); err != nil { // so that died needs no thread
		_ = unix.Close(pidfd)
		return p, err
	}
	p.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	return p, nil
}

// died waits until the process has died. It returns false at the time of waitUntil.
func (p *peer) died() bool {
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
func (p *peer) waitUntil(t time.Time) { _ = p.pidfd.SetReadDeadline(t) }

func (p *peer) close() { _ = p.pidfd.Close() }

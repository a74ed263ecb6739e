package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Client ports come from [portMin, portMax). Both they and the cluster bus
// ports, which Redis puts 10,000 higher, lie below the range from which
// Linux takes the source ports of outgoing connections (32768 and up): else
// somebody's outgoing connection could sit on the port of a server that is
// about to be restarted, or a client that dials a dead port could be connected
// to itself.
const (
	portMin       = 10_000
	portMax       = 20_000
	busPortOffset = 10_000
	portTries     = 200
)

// ports remembers what this process has taken. The open files hold advisory
// locks, which the kernel drops with the process, however it ends.
var ports struct {
	sync.Mutex
	taken map[int]*os.File
}

// takePort finds a free port and keeps it for this process for good. Other
// test binaries that run at the same time pass over it because its lock file is
// locked, everyone else's servers are noticed by trying to listen.
func takePort() (int, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("lockdog-redistest-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("redistest: folder for port locks: %w", err)
	}
	ports.Lock()
	defer ports.Unlock()
	if ports.taken == nil {
		ports.taken = make(map[int]*os.File)
	}
	for range portTries {
		port := portMin + rand.IntN(portMax-portMin)
		if ports.taken[port] != nil {
			continue
		}
		f, err := lockFile(filepath.Join(dir, strconv.Itoa(port)))
		if err != nil {
			return 0, err
		}
		if f == nil {
			continue // another test binary's
		}
		// Locked first: two binaries that try the same port would find each other there.
		if !canListen(port) || !canListen(port+busPortOffset) {
			_ = f.Close() // opened only to be locked; there is nothing to lose
			continue
		}
		ports.taken[port] = f
		return port, nil
	}
	return 0, fmt.Errorf("redistest: no free port in [%d, %d) after %d tries", portMin, portMax, portTries)
}

// FreePort finds a port on which nothing listens, and which no other test is given.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := takePort()
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// lockFile returns nil without an error when another process has the lock.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("redistest: port lock: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close() // opened only to be locked; there is nothing to lose
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil //nolint:nilnil // two lines above say so, and both callers are in this file
	}
	return nil, fmt.Errorf("redistest: port lock: %w", err)
}

func canListen(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

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
	"time"
)

// Client ports come from [portMin, portMax). They and the cluster bus ports, which Redis puts 10,000 higher, are below
// the range from which Linux takes the source ports of outgoing connections (32768 and up). Otherwise an outgoing
// connection could use the port of a server that is about to be restarted, or a client that dials a dead port could
// connect to itself.
const (
	portMin       = 10_000
	portMax       = 20_000
	busPortOffset = 10_000
	portTries     = 200
)

// taken has the lock files of the ports that this process has taken. While they are open they hold advisory locks,
// which the kernel releases when the process ends in any way.
var taken sync.Map

// takePort returns a free port, and reserves it until this process ends. Other calls, in this test binary or in one
// that runs at the same time, skip it, because its lock file is locked. A port on which any other program listens is
// skipped, too.
func takePort() (int, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("lockdog-redistest-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("redistest: folder for port locks: %w", err)
	}
	for range portTries {
		port := portMin + rand.IntN(portMax-portMin)
		f, err := lockFile(filepath.Join(dir, strconv.Itoa(port)))
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue // reserved
		}
		if err != nil {
			return 0, fmt.Errorf("redistest: port lock: %w", err)
		}
		if !refuses(port) || !refuses(port+busPortOffset) {
			_ = f.Close() // nothing was written, so no error matters
			continue
		}
		taken.Store(port, f)
		return port, nil
	}
	return 0, fmt.Errorf("redistest: no free port in [%d, %d) after %d tries", portMin, portMax, portTries)
}

// FreePort returns a port on which nothing listens, and which no other test gets.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := takePort()
	must(tb, err)
	return port
}

// lockFile opens and locks a file. The error matches EWOULDBLOCK if the lock is held.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written, so no error matters
		return nil, err
	}
	return f, nil
}

// refuses reports whether nobody listens on a port. It doesn't listen itself: if another goroutine starts a process at
// that moment, the listener would stay open in that process from fork to exec, after its Close here.
func refuses(port int) bool {
	conn, err := net.DialTimeout("tcp", loopback(port), time.Second)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

package redistest

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

func TestTakePortGivesEachOnce(t *testing.T) {
	t.Parallel()
	seen := make(map[int]bool)
	for range 50 {
		port, err := takePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < portMin || port >= portMax {
			t.Fatalf("port %d: twice or out of range", port)
		}
		seen[port] = true
	}
}

// Two test binaries are two open files to the kernel; so are two calls here.
func TestLockFileRefusesTheSecond(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "10001")
	first, err := lockFile(path)
	if err != nil {
		t.Fatalf("first lock: %v, %v", first, err)
	}
	if second, err := lockFile(path); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("second lock: %v, %v; want none while the first is held", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third, err := lockFile(path)
	if err != nil {
		t.Fatalf("lock after the first ended: %v, %v", third, err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
}

func TestRefusesSeesOtherServers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if refuses(l.Addr().(*net.TCPAddr).Port) {
		t.Error("a port in use was found free")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A process that is being started has all open files until its exec: also a listener that was closed in the meantime.
func TestFreePortWhileProcessesStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var starters sync.WaitGroup
	for range 4 {
		starters.Go(func() {
			for ctx.Err() == nil {
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 200 {
		port := FreePort(t)
		if conn, err := net.Dial("tcp", loopback(port)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("port %d: %v, %v; want it refused", port, conn, err)
			break
		}
	}
	cancel()
	starters.Wait()
}

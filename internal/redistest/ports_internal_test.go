package redistest

import (
	"errors"
	"net"
	"path/filepath"
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

func TestCanListenSeesOtherServers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if canListen(l.Addr().(*net.TCPAddr).Port) {
		t.Error("a port in use was found free")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

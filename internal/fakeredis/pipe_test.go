package fakeredis_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/lockdog/lockdog/internal/fakeredis"
)

// A write to a closed connection fails as that of a socket does, by which go-redis and lockdog know that the connection is broken.
func TestPipe_WriteAfterClose(t *testing.T) {
	t.Parallel()
	client, server := fakeredis.Pipe()
	_ = server.Close()
	_, err := client.Write([]byte("PING"))
	if op := (*net.OpError)(nil); !errors.As(err, &op) || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("closed by the other end: %v", err)
	}
	if _, err := server.Write([]byte("PONG")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed here: %v", err)
	}
}

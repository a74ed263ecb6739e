// Package unixsocket connects to Unix sockets.
package unixsocket

import (
	"context"
	"net"
)

// Dial connects to the Unix socket at path. Package redistest replaces it, so that tests in a synctest bubble can use
// pipes instead: the clock of a bubble stands still while a goroutine waits for the kernel.
var Dial = func(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

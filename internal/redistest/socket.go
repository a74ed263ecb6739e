package redistest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/lockdog/lockdog/internal/unixsocket"
)

func init() {
	dialKernel := unixsocket.Dial
	unixsocket.Dial = func(ctx context.Context, path string) (net.Conn, error) {
		if isPipe(path) {
			return dial(ctx, path)
		}
		return dialKernel(ctx, path)
	}
}

// Socket stands for a Unix socket in a synctest bubble. A [Proxy] may be in front of it: its target is the path. At
// first, nobody listens.
type Socket struct{ path string }

// NewSocket returns a new socket.
func NewSocket(tb testing.TB) *Socket {
	tb.Helper()
	s := &Socket{freePipe()}
	tb.Cleanup(s.Refuse)
	return s
}

// Path returns the path for clients.
func (s *Socket) Path() string { return s.path }

// Serve makes serve get the server's end of each new connection. It replaces what listened before.
func (s *Socket) Serve(serve func(net.Conn)) {
	pipes.Store(s.path, func(c net.Conn) bool {
		serve(c)
		return true
	})
}

// Refuse makes new connections fail with ECONNREFUSED.
func (s *Socket) Refuse() { pipes.Delete(s.path) }

// Listen returns a listener for new connections. It replaces what listened before.
func (s *Socket) Listen() net.Listener {
	l := &pipeListener{path: s.path, conns: make(chan net.Conn, 1000)}
	pipes.Store(s.path, l.serve)
	return l
}

// pipeListener accepts pipes.
type pipeListener struct {
	path  string
	conns chan net.Conn // closed by Close

	mu     sync.Mutex
	closed bool
}

// serve takes a connection that Accept will return. It returns false if the listener is closed, or there are too many.
func (l *pipeListener) serve(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.conns) == cap(l.conns) {
		return false
	}
	l.conns <- c
	return true
}

func (l *pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Close also closes the connections that nobody has accepted.
func (l *pipeListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.conns)
	for c := range l.conns {
		_ = c.Close()
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/lockdog/lockdog/internal/fakeredis"
)

// network is the network on which proxies listen and dial: TCP, or pipes in this process.
type network interface {
	freeAddr() (string, error)
	listen(addr string) (net.Listener, error)
	dial(ctx context.Context, addr string) (net.Conn, error)
}

// fakeHost is the host of every address of a pipe.
const fakeHost = "fake"

func networkOf(addr string) network {
	if strings.HasPrefix(addr, fakeHost+":") {
		return pipes
	}
	return tcp{}
}

type tcp struct{}

func (tcp) freeAddr() (string, error) {
	port, err := takePort()
	return loopback(port), err
}

func (tcp) listen(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }

func (tcp) dial(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", addr)
}

// pipes is the network of pipes. They need no kernel, so a synctest bubble notices when all goroutines wait.
var pipes = &pipeNetwork{listeners: make(map[string]*pipeListener)}

type pipeNetwork struct {
	lastPort atomic.Int64

	mu        sync.Mutex
	listeners map[string]*pipeListener
}

func (n *pipeNetwork) freeAddr() (string, error) {
	return fmt.Sprintf("%s:%d", fakeHost, n.lastPort.Add(1)), nil
}

func (n *pipeNetwork) listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: fakeHost, Err: syscall.EADDRINUSE}
	}
	l := &pipeListener{network: n, addr: addr, dialed: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

func (n *pipeNetwork) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	if l != nil {
		client, server := fakeredis.Pipe()
		select {
		case l.dialed <- server:
			return client, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.closed:
		}
	}
	return nil, &net.OpError{Op: "dial", Net: fakeHost, Err: syscall.ECONNREFUSED}
}

type pipeListener struct {
	network *pipeNetwork
	addr    string
	dialed  chan net.Conn
	closed  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.dialed:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Addr() net.Addr { return fakeAddr(l.addr) }

// Close frees the address.
func (l *pipeListener) Close() error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.addr] == l {
		delete(l.network.listeners, l.addr)
		close(l.closed)
	}
	return nil
}

// fakeAddr is the address of a listener of pipes.
type fakeAddr string

func (fakeAddr) Network() string  { return fakeHost }
func (a fakeAddr) String() string { return string(a) }

package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc/test/bufconn"
)

// network is what proxies listen on and dial: TCP, or pipes in this process.
type network interface {
	freeAddr() (string, error)
	listen(addr string) (net.Listener, error)
	dial(ctx context.Context, addr string) (net.Conn, error)
}

// fakeHost is the host of every address in pipes.
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
	return (&net.Dialer{Timeout: startLimit}).DialContext(ctx, "tcp", addr)
}

// pipes are the connections that need no kernel, so that a synctest bubble sees when all wait.
var pipes = &pipeNetwork{listeners: make(map[string]*bufconn.Listener)}

type pipeNetwork struct {
	lastPort atomic.Int64

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
}

// pipeSize is what one direction of a pipe holds: more than the largest batch, as neither end reads while it writes.
const pipeSize = 64 << 10

func (n *pipeNetwork) freeAddr() (string, error) {
	return fmt.Sprintf("%s:%d", fakeHost, n.lastPort.Add(1)), nil
}

func (n *pipeNetwork) listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: fakeHost, Err: syscall.EADDRINUSE}
	}
	l := bufconn.Listen(pipeSize)
	n.listeners[addr] = l
	return &pipeListener{Listener: l, network: n, addr: addr}, nil
}

func (n *pipeNetwork) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	if l != nil {
		conn, err := l.DialContext(ctx)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
	}
	return nil, &net.OpError{Op: "dial", Net: fakeHost, Err: syscall.ECONNREFUSED}
}

// pipeListener gives its address back when it is closed.
type pipeListener struct {
	*bufconn.Listener
	network *pipeNetwork
	addr    string
}

func (l *pipeListener) Close() error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.addr] == l.Listener {
		delete(l.network.listeners, l.addr)
	}
	return l.Listener.Close()
}

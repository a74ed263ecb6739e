package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockdog/lockdog/internal/fakeredis"
)

// network is the network on which proxies listen and dial: TCP, or pipes in this process.
type network interface {
	freeAddr() (string, error)
	// listen calls serve for each new connection, until stop is called. A pipe is refused if serve returns false.
	listen(addr string, serve func(net.Conn) bool) (stop func() error, err error)
	dial(ctx context.Context, addr string) (net.Conn, error)
}

// fakeHost is the host of every address of a pipe.
const fakeHost = "fake"

func networkOf(addr string) network {
	if strings.HasPrefix(addr, fakeHost+":") {
		return pipes{}
	}
	return tcp{}
}

type tcp struct{}

func (tcp) freeAddr() (string, error) {
	port, err := takePort()
	return loopback(port), err
}

func (tcp) listen(addr string, serve func(net.Conn) bool) (stop func() error, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // stopped
			}
			serve(conn)
		}
	}()
	return l.Close, nil
}

func (tcp) dial(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", addr)
}

// pipes is the network of pipes. They need no kernel, so a synctest bubble notices when all goroutines wait.
type pipes struct{}

var (
	lastPipe  atomic.Int64
	pipesOpen sync.Map // from an address to the function that serves its connections
)

func (pipes) freeAddr() (string, error) {
	return fmt.Sprintf("%s:%d", fakeHost, lastPipe.Add(1)), nil
}

func (pipes) listen(addr string, serve func(net.Conn) bool) (stop func() error, err error) {
	pipesOpen.Store(addr, serve)
	stop = func() error {
		pipesOpen.Delete(addr)
		return nil
	}
	return stop, nil
}

func (pipes) dial(_ context.Context, addr string) (net.Conn, error) {
	return fakeredis.Dial(func(conn net.Conn) bool {
		serve, ok := pipesOpen.Load(addr)
		return ok && serve.(func(net.Conn) bool)(conn)
	})
}

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

// A fake and the proxies in front of it are reached by pipes, whose addresses begin with fakeHost. Pipes need no
// kernel, so a synctest bubble notices when all goroutines wait.
const fakeHost = "fake:"

func isPipe(addr string) bool { return strings.HasPrefix(addr, fakeHost) }

var (
	lastPipe atomic.Int64
	pipes    sync.Map // from an address to the function that serves its connections
)

// freePipe returns an address for listen.
func freePipe() string { return fmt.Sprint(fakeHost, lastPipe.Add(1)) }

// listen calls serve for each new connection, until stop is called. A pipe is refused if serve returns false.
func listen(addr string, serve func(net.Conn) bool) (stop func() error, err error) {
	if isPipe(addr) {
		pipes.Store(addr, serve)
		stop = func() error {
			pipes.Delete(addr)
			return nil
		}
		return stop, nil
	}
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

func dial(ctx context.Context, addr string) (net.Conn, error) {
	if !isPipe(addr) {
		return (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", addr)
	}
	return fakeredis.Dial(func(conn net.Conn) bool {
		serve, ok := pipes.Load(addr)
		return ok && serve.(func(net.Conn) bool)(conn)
	})
}

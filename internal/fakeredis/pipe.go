package fakeredis

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Pipe returns the ends of a connection in this process. Unlike [net.Pipe] it buffers what was written and not yet
// read, because neither a client nor a server reads while it writes. Unlike bufconn it starts no timer that is due at
// once: with the race detector, two of these at a time crash a program that has a bubble (golang.org/issue/78156).
func Pipe() (client, server net.Conn) {
	up, down := newStream(), newStream()
	return &pipeEnd{in: down, out: up}, &pipeEnd{in: up, out: down}
}

// Dial gives one end of a [Pipe] to serve, and returns the other. If serve returns false, the connection is refused.
func Dial(serve func(net.Conn) bool) (net.Conn, error) {
	client, server := Pipe()
	if !serve(server) {
		return nil, &net.OpError{Op: "dial", Net: pipeAddr{}.Network(), Err: syscall.ECONNREFUSED}
	}
	return client, nil
}

// pipeEnd is one end of a pipe. Its writes never block.
type pipeEnd struct{ in, out *stream }

func (e *pipeEnd) Read(p []byte) (int, error)         { return e.in.read(p) }
func (e *pipeEnd) Write(p []byte) (int, error)        { return e.out.write(p) }
func (e *pipeEnd) LocalAddr() net.Addr                { return pipeAddr{} }
func (e *pipeEnd) RemoteAddr() net.Addr               { return pipeAddr{} }
func (e *pipeEnd) SetDeadline(t time.Time) error      { return e.SetReadDeadline(t) }
func (e *pipeEnd) SetReadDeadline(t time.Time) error  { e.in.setDeadline(t); return nil }
func (e *pipeEnd) SetWriteDeadline(t time.Time) error { return nil }

// Close closes both directions. The other end can still read what was written.
func (e *pipeEnd) Close() error {
	e.in.close(net.ErrClosed)
	e.out.close(io.EOF)
	return nil
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "fake" }

// stream is one direction of a pipe.
type stream struct {
	mu       sync.Mutex
	changed  sync.Cond
	data     []byte
	end      error // what read returns after the data; nil: there may be more
	deadline time.Time
	timer    *time.Timer // wakes readers at the deadline
}

func newStream() *stream {
	s := new(stream)
	s.changed.L = &s.mu
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(s.data) > 0:
			n := copy(p, s.data)
			s.data = s.data[n:]
			return n, nil
		case s.end != nil:
			return 0, s.end
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.end == nil:
	case errors.Is(s.end, io.EOF): // closed by this end
		return 0, net.ErrClosed
	default:
		return 0, &net.OpError{Op: "write", Net: pipeAddr{}.Network(), Err: syscall.EPIPE} // like a socket
	}
	s.data = append(s.data, p...)
	s.changed.Broadcast()
	return len(p), nil
}

func (s *stream) close(end error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = end
	if s.timer != nil {
		s.timer.Stop()
	}
	s.changed.Broadcast()
}

func (s *stream) setDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	if s.timer != nil {
		s.timer.Stop()
	}
	if wait := time.Until(t); wait > 0 {
		s.timer = time.AfterFunc(wait, s.wake)
	}
	s.changed.Broadcast()
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

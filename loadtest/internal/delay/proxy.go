// Package delay simulates a distance to a server: a TCP proxy on loopback that delivers bytes half a round trip later,
// in both directions. It doesn't limit the throughput: many bytes may be in flight.
package delay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

const (
	// chunkSize is the maximum of one read.
	chunkSize = 16 << 10
	// maxChunks is the maximum number of chunks in flight, of all connections together. At that number reads stop.
	maxChunks = 1 << 16

	dialTimeout = 5 * time.Second
)

// Proxy forwards the connections that it accepts to one server. It delays only bytes, not the connecting.
type Proxy struct {
	target   string
	oneWay   time.Duration
	listener net.Listener
	ctx      context.Context // ends with the proxy
	stop     context.CancelFunc
	inFlight chan chunk // all take equally long, so they are due in this order
	all      sync.WaitGroup

	first sync.Once
	err   error // the first one
}

// chunk is what one read returned.
type chunk struct {
	due    time.Time
	stream *stream
	data   []byte // nil: the end of the stream
}

// stream is one direction of a connection.
type stream struct {
	from, to *net.TCPConn
	wake     chan struct{} // has an element if ready may have one

	mu    sync.Mutex
	ready net.Buffers // due, to be written
}

// Start starts a proxy on a free port of loopback for target (host:port), with a round trip of rtt.
func Start(target string, rtt time.Duration) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("delay: %w", err)
	}
	p := &Proxy{target: target, oneWay: rtt / 2, listener: l, inFlight: make(chan chunk, maxChunks)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.all.Go(p.accept)
	p.all.Go(p.deliver)
	return p, nil
}

// Launch starts the servers of redistest.Launch and, if rtt isn't 0, a proxy in front of the first server. Clients at
// that distance connect to addrs.
func Launch(cluster bool, rtt time.Duration) (servers, addrs []string, stop func() error, err error) {
	servers, stop, err = redistest.Launch(cluster)
	if err != nil || rtt == 0 {
		return servers, servers, stop, err
	}
	stopServers := stop
	p, err := Start(servers[0], rtt)
	if err != nil {
		return nil, nil, nil, errors.Join(err, stopServers())
	}
	return servers, []string{p.Addr()}, func() error { return errors.Join(p.Close(), stopServers()) }, nil
}

// Addr returns the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes all connections, and drops the chunks in flight. It returns the first error that prevented a client from
// reaching the server.
func (p *Proxy) Close() error {
	p.stop()
	err := p.listener.Close()
	p.all.Wait()
	return errors.Join(p.err, err)
}

func (p *Proxy) fail(err error) {
	if p.ctx.Err() == nil {
		p.first.Do(func() { p.err = fmt.Errorf("delay: %w", err) })
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			p.fail(err) // ignored if the proxy is closed
			return
		}
		p.all.Go(func() { p.forward(conn.(*net.TCPConn)) })
	}
}

// forward serves one connection until both directions have ended. Package net sets TCP_NODELAY on both connections.
func (p *Proxy) forward(client *net.TCPConn) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		p.fail(err)
		_ = client.SetLinger(0) // the client sees a reset, as when a server has died
		_ = client.Close()
		return
	}
	server := conn.(*net.TCPConn)
	ctx, cut := context.WithCancel(p.ctx)
	defer cut()
	closeBoth := func() { _, _ = client.Close(), server.Close() } // an error is about a connection that was given up
	defer context.AfterFunc(ctx, closeBoth)()
	var both sync.WaitGroup
	for from, to := range map[*net.TCPConn]*net.TCPConn{client: server, server: client} {
		s := &stream{from: from, to: to, wake: make(chan struct{}, 1)}
		both.Go(func() { p.read(ctx, s) })
		both.Go(func() {
			if s.write(ctx) != nil {
				cut() // the receiver has gone
			}
		})
	}
	both.Wait()
	closeBoth()
}

// read reads from a stream's sender, and queues the chunks with their due times.
func (p *Proxy) read(ctx context.Context, s *stream) {
	buf := make([]byte, chunkSize)
	for {
		n, err := s.from.Read(buf)
		c := chunk{due: time.Now().Add(p.oneWay), stream: s}
		if n > 0 {
			c.data = append(c.data, buf[:n]...)
		} else if err == nil {
			continue
		}
		select {
		case p.inFlight <- c:
		case <-ctx.Done():
			return
		}
		if c.data == nil { // the end, or a broken connection: the receiver sees the end in both cases
			return
		}
	}
}

// deliver passes chunks to their streams when they are due.
func (p *Proxy) deliver() {
	for {
		select {
		case c := <-p.inFlight:
			if !p.wait(c.due) {
				return
			}
			c.stream.deliver(c.data)
		case <-p.ctx.Done():
			return
		}
	}
}

func (s *stream) deliver(data []byte) {
	s.mu.Lock()
	s.ready = append(s.ready, data)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write writes what is due, and then the end of the stream.
func (s *stream) write(ctx context.Context) error {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		ready := s.ready
		s.ready = nil
		s.mu.Unlock()
		ended := len(ready) > 0 && ready[len(ready)-1] == nil
		if _, err := ready.WriteTo(s.to); err != nil {
			return err
		}
		if ended {
			return s.to.CloseWrite()
		}
	}
}

// wait waits until a time. It returns false if it ended earlier because the proxy was closed.
func (p *Proxy) wait(until time.Time) bool {
	if early := time.Until(until) - coarse; early > 0 {
		timer := time.NewTimer(early)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			return false
		}
	}
	for left := time.Until(until); left > 0; left = time.Until(until) {
		nap(left)
	}
	return true
}

// Package delay puts a server at a distance: a TCP proxy on loopback whose bytes arrive half a round trip later, in both directions. Its
// throughput is that of the machine, as bytes travel side by side.
package delay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// MaxRTT is the longest round trip.
	MaxRTT = 10 * time.Second

	// maxChunks is how many chunks may be on their way, of all connections together. While there are as many, nothing is read.
	maxChunks = 1 << 16

	dialTimeout = 5 * time.Second
)

// Proxy forwards the connections that it accepts to one server. Connecting takes no longer than without: only bytes are held.
type Proxy struct {
	target   string
	oneWay   time.Duration
	listener net.Listener
	ctx      context.Context // ends with the proxy
	stop     context.CancelFunc
	chunks   chan chunk // on their way; all take as long, so that they are due in this order
	all      sync.WaitGroup

	mu  sync.Mutex
	err error // the first one
}

// chunk is what one read returned.
type chunk struct {
	due    time.Time
	stream *stream
	data   []byte // nil: the end of the stream
}

// Start listens on a free port of loopback for connections to target, host:port, and puts it at a distance of rtt.
func Start(target string, rtt time.Duration) (*Proxy, error) {
	if rtt < 0 || rtt > MaxRTT {
		return nil, fmt.Errorf("a round trip of %v: want 0 to %v", rtt, MaxRTT)
	}
	if _, _, err := net.SplitHostPort(target); err != nil {
		return nil, fmt.Errorf("delay: want host:port: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("delay: %w", err)
	}
	p := &Proxy{target: target, oneWay: rtt / 2, listener: l, chunks: make(chan chunk, maxChunks)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.all.Go(p.accept)
	p.all.Go(p.deliver)
	return p, nil
}

// Addr is the host:port to give to clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes all connections; what is on its way is dropped. It returns the first error that kept a client from the server.
func (p *Proxy) Close() error {
	p.stop()
	err := p.listener.Close()
	p.all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.err, err)
}

func (p *Proxy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.ctx.Err() == nil {
		p.err = fmt.Errorf("delay: %w", err)
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			p.fail(err) // unless it was closed
			return
		}
		p.all.Go(func() { p.forward(conn.(*net.TCPConn)) })
	}
}

// forward serves one connection until both directions have ended. Package net sets TCP_NODELAY on both of its sides.
func (p *Proxy) forward(client *net.TCPConn) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		p.fail(err)
		_ = client.SetLinger(0) // the client sees a reset, as of a server that has died
		_ = client.Close()
		return
	}
	server := conn.(*net.TCPConn)
	up, down := newStream(client, server), newStream(server, client)
	cut := func() {
		up.cut()
		down.cut()
	}
	stopped := make(chan struct{})
	unwatch := context.AfterFunc(p.ctx, func() {
		defer close(stopped)
		cut()
	})
	var both sync.WaitGroup
	for _, s := range []*stream{up, down} {
		both.Go(func() { p.read(s) })
		both.Go(func() {
			if s.write() != nil {
				cut() // the receiver has gone
			}
		})
	}
	both.Wait()
	if !unwatch() {
		<-stopped
	}
	cut()
}

// read sends what a stream's sender says on its way.
func (p *Proxy) read(s *stream) {
	buf := make([]byte, chunkSize)
	for {
		n, err := s.from.Read(buf)
		c := chunk{due: time.Now().Add(p.oneWay), stream: s}
		if n > 0 {
			c.data = append(c.data, buf[:n]...)
			if !s.reserve(n) {
				return
			}
		} else if err == nil {
			continue
		}
		select {
		case p.chunks <- c:
		case <-p.ctx.Done():
			return
		}
		if c.data == nil { // also of a connection that broke: a proxy can't pass that on
			return
		}
	}
}

// deliver hands out chunks when they are due.
func (p *Proxy) deliver() {
	for {
		select {
		case c := <-p.chunks:
			if !p.wait(c.due) {
				return
			}
			c.stream.deliver(c.data)
		case <-p.ctx.Done():
			return
		}
	}
}

// wait returns false when the proxy is closed before that time.
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

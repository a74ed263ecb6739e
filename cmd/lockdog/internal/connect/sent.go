package connect

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Sent counts the commands that a client sends over all its connections. It includes the commands of clients that are
// made from that client's options.
type Sent struct{ commands atomic.Int64 }

// Commands returns the number of commands sent.
func (s *Sent) Commands() int64 { return s.commands.Load() }

// count sets a dialer whose connections count their commands in s.
func (s *Sent) count(o *redis.UniversalOptions) {
	dial := redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, sent: s}, nil
	}
}

// countedConn is a connection that counts its commands.
type countedConn struct {
	net.Conn
	sent *Sent
	requests
}

// Write counts the commands in b. It must not be called concurrently.
func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.commands.Add(c.begun(b[:n]))
	return n, err
}

// requests parses what is sent to Redis: arrays of texts, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", split into writes at any
// place.
type requests struct {
	skip   int64 // bytes left of a text and its \r\n
	header byte  // first byte of the current line, 0 before it
	number int64 // in the current line, so far
}

// begun returns how many commands begin in b.
func (r *requests) begun(b []byte) (n int64) {
	for len(b) > 0 {
		if r.skip > 0 {
			k := min(r.skip, int64(len(b)))
			r.skip, b = r.skip-k, b[k:]
			continue
		}
		c := b[0]
		b = b[1:]
		switch {
		case r.header == 0:
			r.header, r.number = c, 0
			if c == '*' {
				n++
			}
		case c >= '0' && c <= '9':
			r.number = 10*r.number + int64(c-'0')
		case c == '\n':
			if r.header == '$' {
				r.skip = r.number + int64(len("\r\n"))
			}
			r.header = 0
		}
	}
	return n
}

package connect

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Sent counts the commands that a client sends, over all its connections: also those of clients that are made from its options.
type Sent struct{ commands atomic.Int64 }

// Commands is how many were sent.
func (s *Sent) Commands() int64 { return s.commands.Load() }

// count has a client's connections counted.
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

// countedConn is a connection whose commands are counted.
type countedConn struct {
	net.Conn
	sent *Sent
	requests
}

// Write is called by one goroutine at a time.
func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.commands.Add(c.begun(b[:n]))
	return n, err
}

// requests reads what is sent to Redis: arrays of texts, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", however they are cut into pieces.
type requests struct {
	skip   int64 // bytes to come of a text, and its \r\n
	header byte  // the first byte of the line that is being read, 0 before it
	number int64 // of that line, so far
}

// begun is how many commands begin in a piece.
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

package redistest

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"

	"github.com/alicebob/miniredis/v2/proto"
)

// chunkSize is larger than what Redis usually writes at once (16 KiB of replies), and than go-redis's write buffer for
// single commands (32 KiB). So each such write is one chunk. A large pipeline, whose buffer has 128 KiB, may be
// several.
const chunkSize = 64 << 10

// link is a client's connection and the proxy's connection to the server for it.
type link struct {
	id             int
	client, server net.Conn
	// greeting: this is a pipe, and the client has sent only commands that start a connection.
	greeting atomic.Bool

	ctx context.Context // ends with the link, or when it is reset
	end context.CancelFunc
}

// reset breaks both connections. It may be called at any time, and more than once.
func (l *link) reset() {
	l.end()
	closeHard(l.client)
	closeHard(l.server)
}

// closeHard closes a connection with a reset if it is TCP. It ignores errors: a connection that is closed or broken
// can't be reset.
func closeHard(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// closeWrite ends the direction towards c. Only TCP can be half-closed: the other direction of a pipe ends, too.
func closeWrite(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
		return
	}
	_ = c.Close()
}

// pump copies the bytes of one direction. The two directions of a link end separately: a held request is still
// delivered after its sender has gone.
func (p *Proxy) pump(l *link, d Direction) {
	from, to := io.Reader(l.server), l.client
	if d == Up {
		from, to = l.client, l.server
		if p.rewrite != nil {
			from = p.rewrite(from)
		}
	}
	buf := make([]byte, chunkSize)
	dropped := false
	for {
		n, err := from.Read(buf)
		if err != nil {
			// The other side sees an orderly end, even if the connection broke.
			closeWrite(to)
			return
		}
		if dropped {
			continue // keeps reading, so that a full buffer doesn't block the sender
		}
		gate := p.gate.Load() // before asking the rule: a Release after this point applies to this chunk
		greeting := l.greeting.Load()
		if greeting && d == Up && !greets(buf[:n]) {
			greeting = false
			l.greeting.Store(false)
		}
		var v Verdict
		if !greeting {
			v = p.judge(Chunk{Conn: l.id, Dir: d, Data: buf[:n:n]})
		}
		switch v.kind {
		case pass:
		case drop:
			dropped = true
			continue
		case cut:
			l.reset()
			return
		case hold:
			if !gate.hold(l.ctx) {
				return
			}
		case delay:
			ctx, cancel := context.WithTimeout(l.ctx, v.wait)
			<-ctx.Done()
			cancel()
			if l.ctx.Err() != nil {
				return
			}
		case truncate:
			_, _ = to.Write(buf[:min(v.keep, n)])
			closeWrite(to)
			dropped = true
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			dropped = true // the receiver has gone; the sender notices that by the other direction
		}
	}
}

// greets reports whether a request is one of those with which go-redis starts a connection.
func greets(request []byte) bool {
	args, err := proto.ReadStrings(string(request))
	return err == nil && len(args) > 0 && isGreeting(args[0])
}

func isGreeting(cmd string) bool {
	return strings.EqualFold(cmd, "hello") || strings.EqualFold(cmd, "client")
}

package redistest

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// chunkSize is larger than what Redis writes at once (16 KiB of replies) and
// than go-redis's write buffer, so that one write is one chunk.
const chunkSize = 64 << 10

// link is one client's connection and the one to the server that belongs to it.
type link struct {
	id             int
	client, server net.Conn
	greeting       atomic.Bool // in a pipe, until the client has sent more than the start of a connection

	once sync.Once
	gone chan struct{} // closed by reset
}

func newLink(client, server net.Conn) *link {
	l := &link{client: client, server: server, gone: make(chan struct{})}
	_, overTCP := client.(*net.TCPConn)
	l.greeting.Store(!overTCP)
	return l
}

func (l *link) ends(d Direction) (from, to net.Conn) {
	if d == Up {
		return l.client, l.server
	}
	return l.server, l.client
}

// reset breaks both connections. It may be called at any time and often.
func (l *link) reset() {
	l.once.Do(func() {
		close(l.gone)
		closeHard(l.client)
		closeHard(l.server)
	})
}

func (l *link) closeBoth() {
	// Whoever was to learn of an error has long closed his end.
	_ = l.client.Close()
	_ = l.server.Close()
}

// closeHard closes with a reset instead of an orderly end, where there is such a thing. On a connection that
// is already closed or broken there is nothing left to reset.
func closeHard(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// closeWrite ends the direction towards c. A pipe has no half: its other direction ends with it.
func closeWrite(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
		return
	}
	_ = c.Close()
}

// pump moves the bytes of one direction. The two directions of a link end on
// their own: a held request is still delivered after its sender has gone.
func (p *Proxy) pump(l *link, d Direction) {
	from, to := l.ends(d)
	buf := make([]byte, chunkSize)
	dropped := false
	for seq := 1; ; seq++ {
		n, err := from.Read(buf)
		if err != nil {
			// An orderly end passes on; a broken one reaches the other side
			// as an end too, which is all a proxy can know about it.
			closeWrite(to)
			return
		}
		if dropped {
			continue // reads on, so that the sender is not stopped by a full buffer
		}
		gate := p.nextGate() // before the rule is asked: a Release that comes meanwhile is for this chunk, too
		greeting := l.greeting.Load()
		if greeting && d == Up && !greets(buf[:n]) {
			greeting = false
			l.greeting.Store(false)
		}
		var v Verdict
		if !greeting {
			v = p.judge(Chunk{Conn: l.id, Dir: d, Seq: seq, Data: buf[:n:n]})
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
			if !p.hold(l, gate) {
				return
			}
		case delay:
			if !l.sleep(v.wait) {
				return
			}
		case truncate:
			_, _ = to.Write(buf[:min(v.keep, n)])
			closeWrite(to)
			dropped = true
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			dropped = true // the receiver has gone; the sender learns it from the other direction
		}
	}
}

// greets reports whether a request is one with which go-redis begins a connection.
func greets(request []byte) bool {
	_, rest, ok := bytes.Cut(request, []byte("\r\n$")) // "*3\r\n$5\r\nhello\r\n..."
	if !ok {
		return false
	}
	_, rest, _ = bytes.Cut(rest, []byte("\r\n"))
	cmd, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return isGreeting(string(cmd))
}

func isGreeting(cmd string) bool {
	return strings.EqualFold(cmd, "hello") || strings.EqualFold(cmd, "client")
}

// sleep returns false when the connection was cut first.
func (l *link) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.gone:
		return false
	}
}

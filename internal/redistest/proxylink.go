package redistest

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// chunkSize is larger than what Redis usually writes at once (16 KiB of replies), and than go-redis's write buffer for
// single commands (32 KiB; 128 KiB for pipelines). So each such write is one chunk.
const chunkSize = 64 << 10

// link is a client's connection and the proxy's connection to the server for it.
type link struct {
	id             int
	client, server net.Conn
	// greeting: this is a pipe, and the client has sent only commands that start a connection.
	greeting atomic.Bool

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

// reset breaks both connections. It may be called at any time, and more than once.
func (l *link) reset() {
	l.once.Do(func() {
		close(l.gone)
		closeHard(l.client)
		closeHard(l.server)
	})
}

func (l *link) closeBoth() {
	// Errors are ignored: both directions have ended.
	_ = l.client.Close()
	_ = l.server.Close()
}

// closeHard closes a connection with a reset if it is TCP. It ignores errors: a connection that is closed or broken
// can't be reset.
func closeHard(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// closeWrite ends the direction towards c. A pipe can't be closed by half, so its other direction ends too.
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
	from, to := l.ends(d)
	buf := make([]byte, chunkSize)
	dropped := false
	for seq := 1; ; seq++ {
		n, err := from.Read(buf)
		if err != nil {
			// The other side sees an orderly end, even if the connection broke.
			closeWrite(to)
			return
		}
		if dropped {
			continue // keeps reading, so that a full buffer doesn't block the sender
		}
		gate := p.nextGate() // before asking the rule: a Release after this point applies to this chunk
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
			dropped = true // the receiver has gone; the sender notices that by the other direction
		}
	}
}

// greets reports whether a request is one of those with which go-redis starts a connection.
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

// sleep returns false if the connection was cut before d was over.
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

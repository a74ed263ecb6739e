package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to one server, and does to each chunk of bytes what its [Rule] says. It knows nothing of
// Redis's protocol, except the commands that start a connection to a [Fake]. Its methods may be called from any
// goroutine, except those that take a testing.TB: they end the test on failure, so only the test's goroutine may call
// them.
type Proxy struct {
	target string
	addr   string
	net    network
	ctx    context.Context // ends with the proxy
	stop   context.CancelFunc
	wg     sync.WaitGroup

	ruleMu sync.Mutex
	rule   Rule

	mu       sync.Mutex
	listener net.Listener // nil while new connections are refused
	links    map[int]*link
	lastLink int
	gate     chan struct{} // closed by Release, which makes a new one
	held     int
}

// NewProxy starts a proxy in front of target (host:port), a server or a [Fake]. At first it forwards everything. It
// ends with the test, together with its connections and what it holds.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	n := networkOf(target)
	addr, err := n.freeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{target: target, addr: addr, net: n, links: make(map[int]*link), gate: make(chan struct{})}
	p.ctx, p.stop = context.WithCancel(context.Background())
	tb.Cleanup(p.close)
	p.Accept(tb)
	return p
}

// Addr returns the host:port for clients.
func (p *Proxy) Addr() string { return p.addr }

// Target returns the host:port of the server behind the proxy.
func (p *Proxy) Target() string { return p.target }

// SetRule sets the rule for future chunks; nil passes all. Held chunks stay held, and dropped ones stay
// dropped.
func (p *Proxy) SetRule(r Rule) {
	p.ruleMu.Lock()
	defer p.ruleMu.Unlock()
	p.rule = r
}

func (p *Proxy) judge(c Chunk) Verdict {
	p.ruleMu.Lock()
	defer p.ruleMu.Unlock()
	if p.rule == nil {
		return Pass
	}
	return p.rule(c)
}

// Release delivers what is held now, each connection's chunks in their order. If the rule still says Hold, later chunks
// are held again: to let everything through, set the rule first.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.gate)
	p.gate = make(chan struct{})
	p.held = 0
}

// Held returns the number of held chunks. That is at most one per direction of a
// connection: the proxy doesn't read what comes after it.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// AwaitHeld waits until at least n chunks are held.
func (p *Proxy) AwaitHeld(tb testing.TB, n int) {
	tb.Helper()
	err := poll(func(context.Context) error {
		if held := p.Held(); held < n {
			return fmt.Errorf("redistest: proxy %s holds %d chunks, want %d", p.Addr(), held, n)
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// Conns returns the number of open connections.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// CutAll resets all connections that exist now. What they hold is lost.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for _, l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.reset()
	}
}

// Refuse makes new connections fail with ECONNREFUSED. Existing connections continue.
func (p *Proxy) Refuse(tb testing.TB) {
	tb.Helper()
	if err := p.closeListener(); err != nil {
		tb.Fatalf("redistest: proxy: %v", err)
	}
	// Another goroutine may be starting a process. Between fork and exec, that process has the listener too.
	err := poll(func(context.Context) error {
		conn, err := p.net.dial(p.ctx, p.addr)
		if err != nil {
			return nil
		}
		_ = conn.Close()
		return errors.New("it listens still")
	})
	if err != nil {
		tb.Fatalf("redistest: proxy: %v", err)
	}
}

// Accept accepts new connections again after Refuse.
func (p *Proxy) Accept(tb testing.TB) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.ctx.Err() != nil {
		return
	}
	// As in Refuse: a process between fork and exec may still have the last listener, or the one with which the port
	// was tried.
	var l net.Listener
	err := poll(func(context.Context) (err error) {
		l, err = p.net.listen(p.addr)
		return err
	})
	if err != nil {
		tb.Fatalf("redistest: proxy: %v", err)
	}
	p.listener = l
	p.wg.Go(func() { p.serve(l) })
}

func (p *Proxy) closeListener() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return nil
	}
	err := p.listener.Close()
	p.listener = nil
	return err
}

func (p *Proxy) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed by Refuse or close
		}
		p.wg.Go(func() { p.forward(conn) })
	}
}

// forward serves one connection until both directions have ended.
func (p *Proxy) forward(client net.Conn) {
	conn, err := p.net.dial(p.ctx, p.target)
	if err != nil {
		closeHard(client) // a client sees almost the same as with a dead server
		return
	}
	l := newLink(client, conn)
	if !p.add(l) {
		l.reset()
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.pump(l, Up) })
	wg.Go(func() { p.pump(l, Down) })
	wg.Wait()
	p.remove(l)
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.lastLink++
	l.id = p.lastLink
	p.links[l.id] = l
	return true
}

func (p *Proxy) remove(l *link) {
	l.closeBoth()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l.id)
}

// nextGate returns the channel that the next Release closes.
func (p *Proxy) nextGate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate
}

// hold waits for the gate. It returns false if the connection is cut or the proxy ends first.
func (p *Proxy) hold(l *link, gate <-chan struct{}) bool {
	p.count(gate, 1)
	select {
	case <-gate:
		return true
	case <-l.gone:
		p.count(gate, -1)
		return false
	}
}

// count changes the number of held chunks, unless a Release has already released those at the gate.
func (p *Proxy) count(gate <-chan struct{}, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gate == p.gate {
		p.held += n
	}
}

func (p *Proxy) close() {
	p.stop()
	_ = p.closeListener() // the test is over: an error doesn't matter
	p.CutAll()
	p.wg.Wait()
}

// DialThrough returns a dialer for redis.Options and redis.UniversalOptions. It connects to the proxy if a proxy's
// target is dialed, and otherwise directly. So clients of a Cluster or of Sentinels, which learn addresses from the
// servers, can be put behind proxies.
func DialThrough(proxies ...*Proxy) func(ctx context.Context, network, addr string) (net.Conn, error) {
	via := make(map[string]string, len(proxies))
	for _, p := range proxies {
		via[p.target] = p.Addr()
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if a, ok := via[addr]; ok {
			addr = a
		}
		return d.DialContext(ctx, network, addr)
	}
}

package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy forwards connections to one server, and does to each chunk of bytes what its [Rule] says. It knows nothing of
// Redis's protocol, except the commands that start a connection to a [Fake]: these and their replies always pass. Its
// methods may be called from any goroutine, except those that take a testing.TB: they end the test on failure, so only
// the test's goroutine may call them.
type Proxy struct {
	target  string
	addr    string
	rewrite func(io.Reader) io.Reader // changes what a client sends; nil: nothing does
	ctx     context.Context           // ends with the proxy
	stop    context.CancelFunc
	wg      sync.WaitGroup
	gate    atomic.Pointer[gate] // of the next Release

	ruleMu sync.Mutex
	rule   Rule

	mu       sync.Mutex
	refuse   func() error // stops listening; nil while new connections are refused
	links    map[int]*link
	lastLink int
}

// NewProxy starts a proxy in front of target (host:port), a server or a [Fake]. At first it forwards everything. It
// ends with the test, together with its connections and what it holds.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	return startProxy(tb, target, nil)
}

func startProxy(tb testing.TB, target string, rewrite func(io.Reader) io.Reader) *Proxy {
	tb.Helper()
	addr := freePipe()
	if !isPipe(target) {
		addr = loopback(FreePort(tb))
	}
	p := &Proxy{target: target, addr: addr, rewrite: rewrite, links: make(map[int]*link)}
	p.gate.Store(newGate())
	p.ctx, p.stop = context.WithCancel(context.Background())
	tb.Cleanup(p.close)
	p.Accept(tb)
	return p
}

// Addr returns the host:port for clients.
func (p *Proxy) Addr() string { return p.addr }

// Dial connects through the proxy. With it as their Dialer, clients have the target's address for the server, so that
// they agree on it with clients that are behind other proxies.
func (p *Proxy) Dial(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, p.addr) }

// SetRule sets the rule for future chunks; nil passes all. Held chunks stay held, and dropped ones stay dropped.
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

// gate is where chunks are held until the next Release.
type gate struct {
	released chan struct{}
	held     atomic.Int32
}

func newGate() *gate { return &gate{released: make(chan struct{})} }

// hold waits for the Release. It returns false if ctx ends first.
func (g *gate) hold(ctx context.Context) bool {
	g.held.Add(1)
	defer g.held.Add(-1)
	select {
	case <-g.released:
		return true
	case <-ctx.Done():
		return false
	}
}

// Release delivers what is held now, each connection's chunks in their order. If the rule still says Hold, later chunks
// are held again: to let everything through, set the rule first.
func (p *Proxy) Release() { close(p.gate.Swap(newGate()).released) }

// Held returns the number of held chunks. That is at most one per direction of a connection: the proxy doesn't read
// what comes after it.
func (p *Proxy) Held() int { return int(p.gate.Load().held.Load()) }

// AwaitHeld waits until at least n chunks are held.
func (p *Proxy) AwaitHeld(tb testing.TB, n int) {
	tb.Helper()
	must(tb, poll(func() error {
		if held := p.Held(); held < n {
			return fmt.Errorf("redistest: proxy %s holds %d chunks, want %d", p.Addr(), held, n)
		}
		return nil
	}))
}

// Conns returns the number of open connections.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// CutAll resets all connections that have reached the server. What they hold is lost.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.reset()
	}
}

// Refuse makes new connections fail with ECONNREFUSED. Existing connections continue.
func (p *Proxy) Refuse(tb testing.TB) {
	tb.Helper()
	must(tb, p.stopListening())
	// Another goroutine may be starting a process. Between fork and exec, that process has the listener too.
	must(tb, poll(func() error {
		conn, err := dial(p.ctx, p.addr)
		if err != nil {
			return nil
		}
		_ = conn.Close()
		return errors.New("redistest: the proxy still listens")
	}))
}

// Accept accepts new connections again after Refuse.
func (p *Proxy) Accept(tb testing.TB) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil || p.ctx.Err() != nil {
		return
	}
	// As in Refuse: a process between fork and exec may still have the last listener, or the one with which the port
	// was tried.
	must(tb, poll(func() (err error) {
		p.refuse, err = listen(p.addr, p.serve)
		return err
	}))
}

func (p *Proxy) stopListening() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse == nil {
		return nil
	}
	err := p.refuse()
	p.refuse = nil
	return err
}

// serve begins to serve a connection. If the proxy has ended, serve resets the connection and returns false.
func (p *Proxy) serve(client net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		closeHard(client)
		return false
	}
	p.wg.Go(func() { p.forward(client) })
	return true
}

// forward serves one connection until both directions have ended.
func (p *Proxy) forward(client net.Conn) {
	server, err := dial(p.ctx, p.target)
	if err != nil {
		closeHard(client) // a client sees almost the same as with a dead server
		return
	}
	l := p.link(client, server)
	var wg sync.WaitGroup
	wg.Go(func() { p.pump(l, Up) })
	wg.Go(func() { p.pump(l, Down) })
	wg.Wait()
	_, _ = client.Close(), server.Close() // both directions have ended, so no error matters
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l.id)
	l.end()
}

// link notes a connection. If the proxy has ended, the connection is reset.
func (p *Proxy) link(client, server net.Conn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastLink++
	l := &link{id: p.lastLink, client: client, server: server}
	l.ctx, l.end = context.WithCancel(p.ctx)
	l.greeting.Store(isPipe(p.addr))
	p.links[l.id] = l
	if p.ctx.Err() != nil {
		l.reset()
	}
	return l
}

func (p *Proxy) close() {
	p.stop()
	_ = p.stopListening() // the test is over: an error doesn't matter
	p.CutAll()
	p.wg.Wait()
}

package pubsub_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/pubsub"
	"github.com/lockdog/lockdog/telemetry"
)

// servers are several nodes. A message is heard on the node of its channel only. Faults are injected.
type servers struct {
	mu       sync.Mutex
	owners   map[string]string // node by channel, "a" without an entry
	conns    []*conn           // open ones
	opened   int
	commands [][]string // the channels of every SUBSCRIBE
	refusal  error      // the answer to SUBSCRIBE, nil: it is accepted
	refuses  func(channel string) bool
	silent   bool            // nothing is answered
	closes   bool            // SUBSCRIBE ends the connection
	gone     map[string]bool // nodes that can't be connected to
	hidden   bool            // Node doesn't know of the last moves
	stale    bool            // ... nor does Moved find out
	leaving  map[string]bool // channels that are being handed on, as Current says
	mute     bool            // Current says nothing
	follows  int             // calls of Follow
}

func newServers() *servers {
	return &servers{owners: make(map[string]string), gone: make(map[string]bool), refuses: func(string) bool { return true }}
}

func (s *servers) Traits() backend.Traits      { return backend.Traits{PerNode: true} }
func (s *servers) Moved(context.Context)       { s.with(func() { s.hidden = s.hidden && s.stale }) }
func (s *servers) Follow(context.Context) bool { s.with(func() { s.follows++ }); return true }

func (s *servers) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *servers) owner(channel string) string {
	if at, ok := s.owners[channel]; ok {
		return at
	}
	return "a"
}

func (s *servers) Node(channel string) (node string) {
	s.with(func() {
		if node = s.owner(channel); s.hidden {
			node = "a"
		}
	})
	return node
}

func (s *servers) Subscribe(_ context.Context, at backend.Endpoint) (backend.PubSub, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone[at.Node] {
		return nil, backend.ErrGone
	}
	c := &conn{s: s, node: at.Node, channels: make(map[string]bool), more: make(chan struct{}, 1), closed: make(chan struct{})}
	s.conns = append(s.conns, c)
	s.opened++
	return c, nil
}

// publish sends a message to whoever listens at the channel's node.
func (s *servers) publish(channel, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.channels[channel] && (c.node == s.owner(channel) || c.node == "") {
			c.push(reply{ev: backend.Event{Kind: backend.Message, Channel: channel, Payload: payload}})
		}
	}
}

// cut breaks all connections.
func (s *servers) cut() { s.with(s.cutAll) }

func (s *servers) cutAll() {
	for _, c := range slices.Clone(s.conns) {
		c.close()
	}
}

// move gives a channel to another node. The old one ends the subscriptions to it.
func (s *servers) move(channel, to string) { s.with(func() { s.handOn(channel, to) }) }

func (s *servers) handOn(channel, to string) {
	s.owners[channel] = to
	for _, c := range s.conns {
		if c.channels[channel] && c.node != to {
			delete(c.channels, channel)
			c.push(reply{ev: backend.Event{Kind: backend.Unsubscribed, Channel: channel}})
		}
	}
}

// subscribed are the channels that are subscribed to at a node, sorted.
func (s *servers) subscribed(node string) (channels []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		for channel := range c.channels {
			if c.node == node {
				channels = append(channels, channel)
			}
		}
	}
	slices.Sort(channels)
	return channels
}

// conn is one connection. It is guarded by servers.mu.
type conn struct {
	s        *servers
	node     string
	channels map[string]bool
	queue    []reply
	more     chan struct{}
	closed   chan struct{}
}

type reply struct {
	ev  backend.Event
	err error
}

func (c *conn) push(r reply) {
	if c.s.silent {
		return
	}
	c.queue = append(c.queue, r)
	select {
	case c.more <- struct{}{}:
	default:
	}
}

func (c *conn) close() {
	if i := slices.Index(c.s.conns, c); i >= 0 {
		c.s.conns = slices.Delete(c.s.conns, i, i+1)
		close(c.closed)
	}
}

// do runs a command of the client.
func (c *conn) do(command func()) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !slices.Contains(c.s.conns, c) {
		return net.ErrClosed
	}
	command()
	return nil
}

func (c *conn) Subscribe(_ context.Context, channels ...string) error {
	return c.do(func() {
		c.s.commands = append(c.s.commands, channels)
		if c.s.closes {
			c.close()
			return
		}
		if c.s.refusal != nil && slices.ContainsFunc(channels, c.s.refuses) {
			c.push(reply{err: c.s.refusal})
			return
		}
		for _, channel := range channels {
			c.channels[channel] = true
			c.push(reply{ev: backend.Event{Kind: backend.Subscribed, Channel: channel}})
		}
	})
}

func (c *conn) Unsubscribe(_ context.Context, channels ...string) error {
	return c.do(func() {
		for _, channel := range channels {
			delete(c.channels, channel)
			c.push(reply{ev: backend.Event{Kind: backend.Unsubscribed, Channel: channel}})
		}
	})
}

func (c *conn) Ping(context.Context) error {
	return c.do(func() { c.push(reply{ev: backend.Event{Kind: backend.Pong}}) })
}

func (c *conn) Close() error { return c.do(c.close) }

func (c *conn) Current(_ context.Context, channels []string) (leaving map[string]bool, err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.mute {
		return nil, net.ErrClosed
	}
	leaving = make(map[string]bool)
	for _, channel := range channels {
		lost := c.node != "" && c.s.owner(channel) != c.node
		if lost {
			err = backend.ErrGone
		}
		leaving[channel] = lost || c.s.leaving[channel]
	}
	return leaving, err
}

func (c *conn) Receive(ctx context.Context, timeout time.Duration) (ev backend.Event, err error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		var r *reply
		err := c.do(func() {
			if len(c.queue) > 0 {
				r, c.queue = &c.queue[0], c.queue[1:]
			}
		})
		if err != nil {
			return backend.Event{}, err
		}
		if r != nil {
			return r.ev, r.err
		}
		select {
		case <-c.more:
		case <-c.closed:
		case <-ctx.Done():
			return backend.Event{}, ctx.Err()
		case <-timer.C:
			return backend.Event{}, backend.ErrIdle
		}
	}
}

// listener notes what it is told.
type listener struct {
	mu   sync.Mutex
	up   bool
	told []string // "up", "down" and payloads
}

func (l *listener) Up()                    { l.note(true, "up") }
func (l *listener) Down()                  { l.note(false, "down") }
func (l *listener) Message(payload string) { l.note(l.isUp(), payload) }

func (l *listener) note(up bool, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.told = up, append(l.told, what)
}

func (l *listener) isUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// heard returns what the listener was told since it was last called.
func (l *listener) heard() (told []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	told, l.told = l.told, nil
	return told
}

func (l *listener) want(t *testing.T, what string, told ...string) {
	t.Helper()
	if got := l.heard(); !slices.Equal(got, told) {
		t.Errorf("%s: told %q, want %q", what, got, told)
	}
}

// calls are those of the functions in Config. It is guarded by servers.mu.
type calls struct {
	refused []string // the error, "" for none
	gone    []backend.Endpoint
}

// newMux returns a Mux that the end of the test closes. It is called in a bubble.
func newMux(t *testing.T, s *servers) (*pubsub.Mux, *calls) {
	t.Helper()
	rec, err := telemetry.NewRecorder(telemetry.Config{State: func() telemetry.State { return telemetry.State{} }})
	if err != nil {
		t.Fatal(err)
	}
	told := &calls{}
	m := pubsub.New(pubsub.Config{
		Backend: s, Recorder: rec,
		Gone: func(at backend.Endpoint) { s.with(func() { told.gone = append(told.gone, at) }) },
		Refused: func(_ string, err error) {
			text := ""
			if err != nil {
				text = err.Error()
			}
			s.with(func() { told.refused = append(told.refused, text) })
		},
	})
	t.Cleanup(func() {
		m.Close()
		rec.Close()
	})
	return m, told
}

// Package pubsub listens to Redis channels: over one connection for the whole client, or over one connection per node
// if messages are received only on the node of their channel. (In a Cluster there is one more, for the control
// channel.)
//
// A Listener may rely on this: once messages may have been missed since an Up, it gets a Down or another Up. A caller
// that waits for a lock therefore tries again after every Up, and polls after a Down.
//
// Down comes at once if the connection breaks, and after 6 s if its server is silent. A server may also lose a channel,
// or begin to move it, without saying so. A check every 3 s finds that out, unless an ACL forbids CLUSTER NODES, and
// Down comes then. If the connection has only a control channel, these times are 60 s and 30 s.
//
// A Mux has one subscriber per Endpoint. A subscriber keeps one connection open while it has subscriptions. It runs two
// goroutines: one receives and reconnects, the other sends and starts checks. A subscription is one channel: see the
// diagram at the type state.
package pubsub

import (
	"context"
	"slices"
	"sync"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/telemetry"
)

// Listener hears what happens on a channel, one call at a time and in order. Its methods are called with Mux.mu held:
// they must neither block nor call the Mux.
type Listener interface {
	Up()   // messages are received from now on
	Down() // messages may have been missed, and may be missed from now on
	Message(payload string)
}

// Backend is the part of backend.Redis that a Mux needs.
type Backend interface {
	Node(channel string) string
	Traits() backend.Traits
	Subscribe(ctx context.Context, at backend.Endpoint) (backend.PubSub, error)
	Moved(ctx context.Context)
	Follow(ctx context.Context) bool
}

// Config is what a Mux needs. All fields are required.
type Config struct {
	Backend  Backend
	Recorder *telemetry.Recorder

	// Refused is called when a server refuses subscriptions or keeps hanging up, and with nil once it accepts them.
	Refused func(node string, err error)
	// Gone is called when the node of a control channel isn't a primary of the Cluster any more. Control must then be
	// called for another endpoint.
	Gone func(backend.Endpoint)
}

// Mux shares connections among Listeners. It is safe for concurrent use.
type Mux struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu          sync.Mutex // also guards the subscribers and their subscriptions
	subscribers map[backend.Endpoint]*subscriber
	channels    map[string]*subscriber // without control channels
}

// New returns a Mux. It connects to nothing before the first Listen or Control.
func New(cfg Config) *Mux {
	m := &Mux{cfg: cfg, subscribers: make(map[backend.Endpoint]*subscriber), channels: make(map[string]*subscriber)}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Listen adds a listener to a channel. If messages are already being received, Up is called at once. If channel a is
// added before channel b of the same slot, and b's name is a prefix of a's, then a's Up comes before b's: package lock
// adds the client's own channel before the lock's. This holds unless one of them was subscribed to before, or a is
// refused.
func (m *Mux) Listen(channel string, l Listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return
	}
	s := m.channels[channel]
	if s == nil {
		s = m.subscriber(m.endpoint(channel))
		m.channels[channel] = s
	}
	sub := s.subs[channel]
	if sub == nil {
		sub = &subscription{channel: channel}
		s.add(sub)
	}
	sub.listeners = append(sub.listeners, l)
	if sub.state == subscribed {
		l.Up()
	}
}

// Unlisten removes a listener. The listener isn't called afterwards.
func (m *Mux) Unlisten(channel string, l Listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.channels[channel]
	if s == nil {
		return
	}
	sub := s.subs[channel]
	if i := slices.Index(sub.listeners, l); i >= 0 {
		sub.listeners = slices.Delete(sub.listeners, i, i+1)
	}
	if len(sub.listeners) == 0 {
		delete(m.channels, channel)
		s.change(channel)
	}
}

// Control listens to a control channel at an endpoint until Close, or until Config.Gone is called for the endpoint. An
// endpoint has at most one control channel.
func (m *Mux) Control(at backend.Endpoint, channel string, l Listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.subscriber(at); m.ctx.Err() == nil && s.subs[channel] == nil {
		s.add(&subscription{channel: channel, control: true, listeners: []Listener{l}})
	}
}

// Recheck checks, in the background, whether messages of a channel are still published where the Mux listens. It does
// nothing if there is no connection, or if subscriber.check does nothing. Call it for a listener that seems to have
// missed a message.
func (m *Mux) Recheck(channel string) {
	m.mu.Lock()
	s := m.channels[channel]
	var conn *connection
	if s != nil {
		conn = s.conn
	}
	m.mu.Unlock()
	if conn != nil {
		s.check(conn, recheckInterval)
	}
}

// State reports whether any connection is wanted and, if so, whether all wanted connections work.
func (m *Mux) State() (wanted, connected bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	connected = true
	for _, s := range m.subscribers {
		if len(s.subs) > 0 {
			wanted, connected = true, connected && s.conn != nil && s.conn.established && !s.refused()
		}
	}
	return wanted, wanted && connected
}

// Close ends the connections, and waits for the goroutines of the Mux.
func (m *Mux) Close() {
	m.mu.Lock() // otherwise Listen or Control could start a goroutine after Wait
	m.cancel()
	m.mu.Unlock()
	m.done.Wait()
}

// subscriber returns the subscriber of an endpoint. mu must be held.
func (m *Mux) subscriber(at backend.Endpoint) *subscriber {
	s := m.subscribers[at]
	if s == nil {
		s = &subscriber{
			mux: m, at: at, kick: make(chan struct{}, 1),
			subs: make(map[string]*subscription), changed: make(map[string]struct{}),
		}
		m.subscribers[at] = s
	}
	return s
}

func (m *Mux) endpoint(channel string) backend.Endpoint {
	if !m.cfg.Backend.Traits().PerNode {
		return backend.Endpoint{}
	}
	return backend.Endpoint{Node: m.cfg.Backend.Node(channel)}
}

// relocate moves subscriptions whose channels now live on another node to the subscriber of that node. mu must be held.
func (m *Mux) relocate(from *subscriber) {
	for channel, sub := range from.subs {
		if sub.control || len(sub.listeners) == 0 {
			continue
		}
		at := m.endpoint(channel)
		if at == from.at || at.Node == "" { // "": unknown at the moment
			continue
		}
		delete(from.subs, channel)
		if sub.held() {
			from.subs[channel] = &subscription{channel: channel, state: subscribed} // no listeners: to be unsubscribed
		}
		from.change(channel)
		sub.on(relocated)
		to := m.subscriber(at)
		to.add(sub)
		m.channels[channel] = to
	}
}

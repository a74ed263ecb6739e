package memory

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// conn is one subscription connection. What is sent to it waits in a queue without bounds, so that publishing never
// blocks.
type conn struct {
	s        *Server
	channels map[string]struct{} // guarded by s.mu, like queue
	queue    []backend.Event
	more     chan struct{} // the queue isn't empty
	closed   chan struct{}
}

// push is called with s.mu held.
func (c *conn) push(ev backend.Event) {
	c.queue = append(c.queue, ev)
	select {
	case c.more <- struct{}{}:
	default:
	}
}

func (c *conn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// Subscribe implements backend.PubSub.
func (c *conn) Subscribe(_ context.Context, channels ...string) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.isClosed() {
		return net.ErrClosed
	}
	for _, channel := range channels {
		c.channels[channel] = struct{}{}
		if c.s.subscribers[channel] == nil {
			c.s.subscribers[channel] = make(map[*conn]struct{})
		}
		c.s.subscribers[channel][c] = struct{}{}
		c.push(backend.Event{Kind: backend.Subscribed, Channel: channel})
		c.deliver(channel)
	}
	return nil
}

// deliver sends the notices that waited for the client to listen to its control channel.
func (c *conn) deliver(channel string) {
	_, client, ok := strings.Cut(channel, control)
	if !ok {
		return
	}
	for _, owner := range c.s.notices[client] {
		c.push(backend.Event{Kind: backend.Message, Channel: channel, Payload: owner})
	}
	delete(c.s.notices, client)
}

// Unsubscribe implements backend.PubSub.
func (c *conn) Unsubscribe(_ context.Context, channels ...string) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.isClosed() {
		return net.ErrClosed
	}
	for _, channel := range channels {
		c.forget(channel)
		c.push(backend.Event{Kind: backend.Unsubscribed, Channel: channel})
	}
	return nil
}

func (c *conn) forget(channel string) {
	delete(c.channels, channel)
	delete(c.s.subscribers[channel], c)
	if len(c.s.subscribers[channel]) == 0 {
		delete(c.s.subscribers, channel)
	}
}

// Ping implements backend.PubSub.
func (c *conn) Ping(context.Context) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.isClosed() {
		return net.ErrClosed
	}
	c.push(backend.Event{Kind: backend.Pong})
	return nil
}

// Receive implements backend.PubSub.
func (c *conn) Receive(ctx context.Context, timeout time.Duration) (backend.Event, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		if c.isClosed() {
			return backend.Event{}, net.ErrClosed
		}
		if ev, ok := c.pop(); ok {
			return ev, nil
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

func (c *conn) pop() (backend.Event, bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if len(c.queue) == 0 {
		return backend.Event{}, false
	}
	ev := c.queue[0]
	c.queue = c.queue[1:]
	return ev, true
}

// Current implements backend.PubSub: there is one server.
func (*conn) Current(context.Context, []string) bool { return true }

// Close implements backend.PubSub. It may be called twice.
func (c *conn) Close() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.isClosed() {
		return net.ErrClosed
	}
	close(c.closed)
	for channel := range c.channels {
		c.forget(channel)
	}
	return nil
}

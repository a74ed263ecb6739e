package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisPubSub is a PubSub over go-redis.
type redisPubSub struct{ ps *redis.PubSub }

func (p *redisPubSub) Subscribe(ctx context.Context, channels ...string) error {
	return p.ps.Subscribe(ctx, channels...)
}

func (p *redisPubSub) Unsubscribe(ctx context.Context, channels ...string) error {
	return p.ps.Unsubscribe(ctx, channels...)
}

func (p *redisPubSub) Ping(ctx context.Context) error { return p.ps.Ping(ctx) }
func (p *redisPubSub) Close() error                   { return p.ps.Close() }

func (p *redisPubSub) Receive(ctx context.Context, timeout time.Duration) (ev Event, err error) {
	// go-redis asserts the types inside a push without checking them; a server that speaks another
	// protocol must cost us the connection, not the process.
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("lockdog: unreadable pub/sub reply: %v", v)
		}
	}()
	got, err := p.ps.ReceiveTimeout(ctx, timeout)
	if err != nil {
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			return Event{}, ErrIdle
		}
		return Event{}, err
	}
	switch m := got.(type) {
	case *redis.Message:
		return Event{Kind: Message, Channel: m.Channel, Payload: m.Payload, Keys: m.PayloadSlice}, nil
	case *redis.Subscription:
		if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
			return Event{Kind: Subscribed, Channel: m.Channel}, nil
		}
		return Event{Kind: Unsubscribed, Channel: m.Channel}, nil
	default:
		return Event{Kind: Pong}, nil
	}
}

// shardedPubSub listens to sharded channels. One command takes channels of one slot only.
type shardedPubSub struct{ redisPubSub }

func (p *shardedPubSub) Subscribe(ctx context.Context, channels ...string) error {
	return p.ps.SSubscribe(ctx, channels...)
}

func (p *shardedPubSub) Unsubscribe(ctx context.Context, channels ...string) error {
	return p.ps.SUnsubscribe(ctx, channels...)
}

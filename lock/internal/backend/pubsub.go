package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// redisPubSub is a PubSub over go-redis.
type redisPubSub struct{ ps *redis.PubSub }

// NewPubSub returns a PubSub for a subscription of go-redis to one server.
func NewPubSub(ps *redis.PubSub) PubSub { return &redisPubSub{ps} }

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

// Current implements PubSub: there is one server.
func (p *redisPubSub) Current(context.Context, []string) (leaving map[string]bool, err error) {
	return leaving, nil
}

// ringPubSub listens at a shard.
type ringPubSub struct {
	redisPubSub
	ring ring
	addr string
}

// Current implements PubSub.
func (p *ringPubSub) Current(ctx context.Context, _ []string) (map[string]bool, error) {
	_, err := p.ring.at(ctx, p.addr)
	return nil, err
}

// clusterPubSub listens to plain channels at a node.
type clusterPubSub struct {
	redisPubSub
	cluster *cluster
	node    *redis.Client
}

// Current implements PubSub: any primary with slots will do.
func (p *clusterPubSub) Current(ctx context.Context, _ []string) (map[string]bool, error) {
	owns, err := p.owns(ctx)
	if err == nil && len(owns.ranges) == 0 {
		err = ErrGone
	}
	return nil, err
}

// owns asks the node which slots it has. It is ErrGone where the node is no primary of the layout as the program's client has it now. Any other
// error is no reason to leave it: without cluster mode it knows nothing of slots, and one that doesn't answer doesn't answer PING, either.
func (p *clusterPubSub) owns(ctx context.Context) (ownSlots, error) {
	if _, err := p.cluster.at(ctx, p.node.Options().Addr); err != nil {
		return ownSlots{}, err
	}
	if p.cluster.mute.Load() {
		return ownSlots{}, errMute
	}
	text, err := p.node.ClusterNodes(ctx).Result()
	if redisfail.IsForbidden(err) || redisfail.IsNotCluster(err) {
		p.cluster.mute.Store(true)
	}
	return readOwnSlots(text), err
}

var errMute = errors.New("lockdog: the servers don't tell which slots they have")

// shardedPubSub listens to the channels of locks at the node of their keys: sharded channels if it has them, else plain ones. What it
// has, the connection's first answer says, which is about this very process: a node that is upgraded breaks the connection. One
// command takes sharded channels of one slot only.
type shardedPubSub struct {
	clusterPubSub

	mu    sync.Mutex
	has   sharding
	tried []func(plainly bool) error // what was sent before the first answer
}

type sharding uint8

const (
	shardingUnknown sharding = iota
	shardingThere
	shardingMissing
)

func (p *shardedPubSub) Subscribe(ctx context.Context, channels ...string) error {
	return p.send(func(plainly bool) error {
		if plainly {
			return p.ps.Subscribe(ctx, channels...)
		}
		return p.ps.SSubscribe(ctx, channels...)
	})
}

func (p *shardedPubSub) Unsubscribe(ctx context.Context, channels ...string) error {
	return p.send(func(plainly bool) error {
		if plainly {
			return p.ps.Unsubscribe(ctx, channels...)
		}
		return p.ps.SUnsubscribe(ctx, channels...)
	})
}

func (p *shardedPubSub) send(command func(plainly bool) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has == shardingUnknown {
		p.tried = append(p.tried, command)
	}
	return command(p.has == shardingMissing)
}

func (p *shardedPubSub) Receive(ctx context.Context, timeout time.Duration) (Event, error) {
	for {
		ev, err := p.redisPubSub.Receive(ctx, timeout)
		switch {
		case err == nil && ev.Kind == Subscribed:
			_ = p.learn(shardingThere) // only what is missing has something to do
		case redisfail.IsUnknownCommand(err):
			if err := p.learn(shardingMissing); err != nil {
				return Event{}, err
			}
			continue
		}
		return ev, err
	}
}

// learn notes the first answer. Where there is no sharding, what was tried is done plainly.
func (p *shardedPubSub) learn(has sharding) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has != shardingUnknown {
		return nil
	}
	p.has = has
	tried := p.tried
	p.tried = nil
	if has == shardingMissing {
		for _, command := range tried {
			if err := command(true); err != nil {
				return err
			}
		}
	}
	return nil
}

// Current implements PubSub. The node is asked, as the layout may be old: it ends the subscriptions to sharded channels when their slot has left
// for another shard, but not while the slot's keys leave one by one, nor when it becomes a replica in its own shard, to which the new primary
// doesn't pass messages on before it knows that; and of plain channels it says nothing.
func (p *shardedPubSub) Current(ctx context.Context, channels []string) (leaving map[string]bool, err error) {
	owns, err := p.owns(ctx)
	if err != nil {
		return nil, err
	}
	leaving = make(map[string]bool)
	for _, channel := range channels {
		slot := hashslot.Of(channel)
		if !owns.has(slot) {
			return nil, ErrGone
		}
		if slices.Contains(owns.leaving, slot) {
			leaving[channel] = true
		}
	}
	return leaving, nil
}

// ownSlots are the slots that a node has.
type ownSlots struct {
	ranges  [][2]int
	leaving []int // those of which it moves the keys to another node: who asks for a key that has left is sent there
}

func (o ownSlots) has(slot int) bool {
	return slices.ContainsFunc(o.ranges, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] })
}

// readOwnSlots reads them from a node's answer to CLUSTER NODES: "<id> <address> myself,master - <4 more> <slots>...". A slot that comes or
// leaves is named once more, as "[<slot>-<-<id>]" or "[<slot>->-<id>]". One that leaves by Valkey's atomic migration isn't, as all its keys leave
// at one moment.
func readOwnSlots(text string) (own ownSlots) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.Contains(fields[2], "myself") || !strings.Contains(fields[2], "master") {
			continue
		}
		for _, r := range fields[8:] {
			if before, _, leaves := strings.Cut(r, "->-"); leaves {
				if slot, err := strconv.Atoi(strings.TrimPrefix(before, "[")); err == nil {
					own.leaving = append(own.leaving, slot)
				}
				continue
			}
			first, last, several := strings.Cut(r, "-")
			if !several {
				last = first
			}
			from, err := strconv.Atoi(first)
			to, err2 := strconv.Atoi(last)
			if err == nil && err2 == nil {
				own.ranges = append(own.ranges, [2]int{from, to})
			}
		}
	}
	return own
}

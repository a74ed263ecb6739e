package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// redisPubSub is a PubSub over go-redis.
type redisPubSub struct{ *redis.PubSub }

// NewPubSub returns a PubSub over a go-redis subscription to one server.
func NewPubSub(ps *redis.PubSub) PubSub { return &redisPubSub{ps} }

func (p *redisPubSub) Ping(ctx context.Context) error { return p.PubSub.Ping(ctx) }

func (p *redisPubSub) Receive(ctx context.Context, timeout time.Duration) (ev Event, err error) {
	// go-redis panics on a push with unexpected types. A server that speaks another protocol must break only the
	// connection, not the process.
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("lockdog: unreadable pub/sub reply: %v", v)
		}
	}()
	got, err := p.ReceiveTimeout(ctx, timeout)
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

// Current implements PubSub. A single server always has all channels. With Sentinels, the connection is closed when
// another primary is named: see followingPubSub.
func (p *redisPubSub) Current(context.Context, []string) (leaving map[string]bool, err error) {
	return leaving, nil
}

// ringPubSub listens at a shard of a Ring.
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

// clusterPubSub listens to plain channels at a node of a cluster.
type clusterPubSub struct {
	redisPubSub
	cluster *cluster
	node    *redis.Client
}

// Current implements PubSub. Every primary with slots receives plain messages.
func (p *clusterPubSub) Current(ctx context.Context, _ []string) (map[string]bool, error) {
	owns, err := p.owns(ctx)
	if err == nil && len(owns.ranges) == 0 {
		err = ErrGone
	}
	return nil, err
}

// owns asks the node for its slots. It returns ErrGone if the node is no primary in the present layout of the program's
// client. No other error is a reason to leave the node: without cluster mode it knows no slots, and if it is silent,
// PING finds out.
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

// shardedPubSub listens to the sharded channels of locks at the node of their keys. One command takes channels of one
// slot only.
type shardedPubSub struct{ clusterPubSub }

func (p *shardedPubSub) Subscribe(ctx context.Context, channels ...string) error {
	return p.SSubscribe(ctx, channels...)
}

func (p *shardedPubSub) Unsubscribe(ctx context.Context, channels ...string) error {
	return p.SUnsubscribe(ctx, channels...)
}

// Current implements PubSub. It asks the node, because the layout may be old, and the node may not say that it has lost
// a channel. A node ends subscriptions to sharded channels when their slot has moved to another shard, but not while
// the keys move one by one, nor when it becomes a replica in its shard. The new primary passes on no messages to the
// node before it knows the node as its replica.
func (p *shardedPubSub) Current(ctx context.Context, channels []string) (leaving map[string]bool, err error) {
	owns, err := p.owns(ctx)
	if err != nil {
		return nil, err
	}
	leaving = make(map[string]bool)
	for _, channel := range channels {
		switch slot := hashslot.Of(channel); {
		case !owns.has(slot):
			leaving[channel], err = true, ErrGone
		case slices.Contains(owns.leaving, slot):
			leaving[channel] = true
		}
	}
	return leaving, err
}

// ownSlots are the slots of a node.
type ownSlots struct {
	ranges  [][2]int
	leaving []int // slots whose keys are being moved to another node: calls for keys that have left are redirected
}

func (o ownSlots) has(slot int) bool {
	return slices.ContainsFunc(o.ranges, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] })
}

// readOwnSlots reads a node's slots from its reply to CLUSTER NODES: "<id> <address> myself,master - <4 more>
// <slots>...". The line also has the slots that are being moved: "[<slot>->-<id>]" for one that leaves, which is still
// among the slots, and "[<slot>-<-<id>]" for one that comes, which isn't yet. Valkey's atomic migration isn't shown,
// because it moves all keys of a slot at one moment.
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

package backend

import (
	"context"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// layout gives the cluster client for renewals the program's client's idea of which node has which slot. Left to itself
// go-redis asks nodes one after the other, in random order, and a renewal whose client has to ask a silent one first waits too long.
type layout struct {
	rdb *redis.ClusterClient

	mu     sync.Mutex
	byPort map[string]string // addresses on this machine, see client
}

// slots is redis.ClusterOptions.ClusterSlots. It does no I/O: rdb has a layout, as there is a grant to renew.
func (l *layout) slots(ctx context.Context) ([]redis.ClusterSlot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byPort = make(map[string]string)
	var slots []redis.ClusterSlot
	var last *redis.Client
	var firstErr error
	for slot := range Slots {
		node, err := l.rdb.MasterForKey(ctx, SlotTag(slot))
		if err != nil { // nobody has it
			if firstErr == nil {
				firstErr = err
			}
			last = nil
			continue
		}
		if node == last {
			slots[len(slots)-1].End = slot
			continue
		}
		last = node
		addr := node.Options().Addr
		slots = append(slots, redis.ClusterSlot{Start: slot, End: slot, Nodes: []redis.ClusterNode{{Addr: addr}}})
		if host, port, err := net.SplitHostPort(addr); err == nil && net.ParseIP(host).IsLoopback() {
			l.byPort[port] = addr
		}
	}
	if len(slots) == 0 {
		return nil, firstErr
	}
	return slots, nil
}

// client is redis.ClusterOptions.NewClient over the program's. Not knowing whose layout it is given, go-redis takes the host from
// addresses on this machine, for they might be meant on another's.
func (l *layout) client(next func(*redis.Options) *redis.Client) func(*redis.Options) *redis.Client {
	return func(o *redis.Options) *redis.Client {
		if host, port, err := net.SplitHostPort(o.Addr); err == nil && host == "" {
			l.mu.Lock()
			if addr, ok := l.byPort[port]; ok {
				o.Addr = addr
			}
			l.mu.Unlock()
		}
		return next(o)
	}
}

package backend

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// limiting is what matters where a client has a redis.Limiter. That counts NOSCRIPT as a failure, and may then deny the call that sends the
// source, each time anew. So a script is sent with its source until its server is known to have it.
type limiting struct {
	on     atomic.Bool
	loaded sync.Map // by node: *sync.Map of the scripts that it has
}

// limitedBy notes that calls with a key may meet a Limiter, if they do.
func (b *Redis) limitedBy(ctx context.Context, t topology, key string) error {
	rdb, err := t.clientOf(ctx, key)
	if err == nil && rdb.Options().Limiter != nil {
		b.limiting.on.Store(true)
	}
	return err
}

// beforeSent has a call send its source if its server may not have the script.
func (b *Redis) beforeSent(call *Call) {
	if b.limiting.on.Load() && !call.SendSource {
		loaded, _ := b.limiting.loaded.LoadOrStore(b.Node(call.routeKey()), new(sync.Map))
		_, known := loaded.(*sync.Map).Load(call.Script)
		call.SendSource = !known
	}
}

// afterSent notes what a call says of its script, and returns its error. It is one of the Limiter if it can't be any other.
func (b *Redis) afterSent(call *Call, err error) error {
	if !b.limiting.on.Load() {
		return err
	}
	switch node := b.Node(call.routeKey()); {
	case err == nil:
		loaded, _ := b.limiting.loaded.LoadOrStore(node, new(sync.Map))
		loaded.(*sync.Map).Store(call.Script, nil)
	case redisfail.IsNoScript(err): // a server that has lost one script has lost all
		b.limiting.loaded.Delete(node)
	}
	return redisfail.Denied(err)
}

// routeKey is the key that says where the call runs.
func (call *Call) routeKey() string {
	if call.RouteKey != "" {
		return call.RouteKey
	}
	return call.Keys[0]
}

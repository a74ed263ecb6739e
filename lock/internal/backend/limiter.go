package backend

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// limiting is for clients with a redis.Limiter. A Limiter counts NOSCRIPT as a failure, and may then deny the call that
// sends the source, every time. So scripts are sent with their source until the server is known to have them.
type limiting struct {
	on     atomic.Bool
	loaded sync.Map // by node: a *sync.Map of the scripts that it has
}

// limitedBy turns limiting on if the client for a key has a Limiter.
func (b *Redis) limitedBy(ctx context.Context, t topology, key string) error {
	rdb, err := t.clientOf(ctx, key)
	if err == nil && rdb.Options().Limiter != nil {
		b.limiting.on.Store(true)
	}
	return err
}

// beforeSent makes a call send its source if the server may not have the script.
func (b *Redis) beforeSent(call *Call) {
	if b.limiting.on.Load() && !call.SendSource {
		loaded, _ := b.limiting.loaded.LoadOrStore(b.Node(call.routeKey()), new(sync.Map))
		_, known := loaded.(*sync.Map).Load(call.Script)
		call.SendSource = !known
	}
}

// afterSent notes whether the server now has the script. It returns err; a Limiter's error becomes a DeniedError.
func (b *Redis) afterSent(call *Call, err error) error {
	if !b.limiting.on.Load() {
		return err
	}
	switch node := b.Node(call.routeKey()); {
	case err == nil:
		loaded, _ := b.limiting.loaded.LoadOrStore(node, new(sync.Map))
		loaded.(*sync.Map).Store(call.Script, nil)
	case redisfail.IsNoScript(err): // the server has probably lost all scripts: it was restarted or replaced
		b.limiting.loaded.Delete(node)
	}
	return redisfail.Denied(err)
}

// routeKey returns the key that decides where the call runs.
func (call *Call) routeKey() string {
	if call.RouteKey != "" {
		return call.RouteKey
	}
	return call.Keys[0]
}

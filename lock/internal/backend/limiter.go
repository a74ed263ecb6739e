package backend

import (
	"sync"
	"sync/atomic"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// limiting is for clients with a redis.Limiter. A Limiter counts NOSCRIPT as a failure, and may then deny the call that
// sends the source, every time. So scripts are sent with their source until the server is known to have them.
type limiting struct {
	on     atomic.Bool
	loaded sync.Map // the servers' scripts, as loadedScript
}

// loadedScript is a script that a server is known to have.
type loadedScript struct {
	node   string
	script *Script
}

// beforeSent makes a call send its source if the client has a Limiter and the server may not have the script.
func (b *Redis) beforeSent(call *Call) {
	if b.limiting.on.Load() && !call.SendSource {
		_, known := b.limiting.loaded.Load(loadedScript{b.Node(call.routeKey()), call.Script})
		call.SendSource = !known
	}
}

// afterSent notes whether the server now has the script. It returns err; a Limiter's error becomes a DeniedError.
func (b *Redis) afterSent(call *Call, err error) error {
	if !b.limiting.on.Load() {
		return err
	}
	switch {
	case err == nil:
		b.limiting.loaded.Store(loadedScript{b.Node(call.routeKey()), call.Script}, nil)
	case redisfail.IsNoScript(err):
		// The server has probably lost all scripts: it was restarted or replaced. To send the sources to the other
		// servers again costs little.
		b.limiting.loaded.Clear()
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

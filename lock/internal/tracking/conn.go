package tracking

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// channel is where Redis publishes the names of changed keys to a RESP2 connection.
const channel = "__redis__:invalidate"

var errReconnected = errors.New(
	"lockdog: go-redis connected again: what the server tracked for the first connection is lost")

// conn is two connections to one server. The server tracks each key that is read over data, and publishes its next
// change to invalidations. If one breaks, both are closed. (With RESP3 one connection would do, but go-redis reads
// invalidations there only while it runs a command.)
type conn struct {
	// data has one connection. A redis.Conn won't do: it lacks the StreamingCredentialsProvider, and panics.
	data          *redis.Client
	invalidations backend.PubSub
	redirect      int64           // the client id of invalidations
	gone          context.Context // ends when both must be closed
	close         func()
}

// newConn returns a conn to a node. It doesn't connect.
func newConn(ctx context.Context, b Backend, node string) (*conn, error) {
	c := &conn{}
	var connected atomic.Int32
	rdb, gone, err := b.Dedicated(ctx, node, func(ctx context.Context, cn *redis.Conn) (err error) {
		switch connected.Add(1) {
		case 1:
			c.redirect, err = cn.ClientID(ctx).Result()
			return err
		case 2:
			return nil
		default:
			return errReconnected
		}
	})
	if err != nil {
		return nil, err
	}
	c.data, c.invalidations, c.gone = rdb, backend.NewPubSub(rdb.Subscribe(ctx)), gone
	c.close = sync.OnceFunc(func() {
		_ = c.invalidations.Close()
		_ = c.data.Close()
	})
	return c, nil
}

// start connects: invalidations first, then data.
func (c *conn) start(ctx context.Context, timeout time.Duration) error {
	if err := c.invalidations.Subscribe(ctx, channel); err != nil {
		return err
	}
	if _, err := c.invalidations.Receive(ctx, timeout); err != nil {
		return err
	}
	return c.data.Do(ctx, "client", "tracking", "on", "redirect", c.redirect).Err()
}

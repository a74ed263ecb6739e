package backend

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Dedicated returns a client of a node. It has one connection, besides those of its subscriptions. onConnect is called
// for each new connection; its error closes the connection. The caller closes the client, at the latest when the
// returned context ends.
func (b *Redis) Dedicated(
	ctx context.Context, node string, onConnect func(context.Context, *redis.Conn) error,
) (*redis.Client, context.Context, error) {
	programs, err := b.at(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	o := b.optionsAt(node, programs, 1)
	alsoOnConnect(o, onConnect)
	o.Protocol = 2 // a RESP3 connection gets invalidations as pushes, which go-redis reads only while it runs a command
	o.ConnMaxIdleTime, o.ConnMaxLifetime = -1, 0
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // they need RESP3
	return redis.NewClient(o), b.during(node), nil
}

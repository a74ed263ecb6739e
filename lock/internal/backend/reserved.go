package backend

import (
	"context"
	"errors"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// renewalConns bounds the connections that renewals open to each server, besides the program's own: a watchdog has at
// most so many calls in flight to one server.
const renewalConns = 8

// reserved has one client per server for renewals (with Sentinel also for subscriptions), with the options of the
// program's client for that server. A second client of the program's kind would not do: go-redis reports a Sentinel's
// switch, or a Ring's new shards, only to the client that it gave the program, and each ClusterClient has a layout of
// its own.
type reserved struct {
	mu     sync.Mutex
	byAddr map[string]*ownClient
	closed bool
}

// ownClient is a client of reserved.
type ownClient struct {
	*redis.Client
	opened atomic.Int64 // how many connections servers have accepted so far
}

// of returns the client for a server. options is called if there is none yet.
func (r *reserved) of(addr string, options func() *redis.Options) (*ownClient, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, redis.ErrClosed
	}
	c := r.byAddr[addr]
	if c == nil {
		c = &ownClient{}
		o := options()
		alsoOnConnect(o, func(context.Context, *redis.Conn) error {
			c.opened.Add(1)
			return nil
		})
		c.Client = redis.NewClient(o)
		if r.byAddr == nil {
			r.byAddr = make(map[string]*ownClient)
		}
		r.byAddr[addr] = c
	}
	return c, nil
}

// drop closes the client for a server. Its calls in flight fail.
func (r *reserved) drop(addr string) {
	r.mu.Lock()
	c := r.byAddr[addr]
	delete(r.byAddr, addr)
	r.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}

func (r *reserved) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, c := range r.byAddr {
		errs = append(errs, c.Close())
	}
	clear(r.byAddr)
	return errors.Join(errs...)
}

// renewing calls run with a client for renewals: the one that NewRedis got, otherwise our own one for the call's Node.
// If our own can't open a connection in time (maxclients, a firewall, changed credentials, a distance), renewing calls
// run again with the program's client, whose connections may still be open. That is safe, as a renewal may be repeated.
// It doesn't do so if the server is silent over an open connection, if ctx has ended, or if the node of the keys isn't
// known any more. If the call has no Node, only the program's client is used.
//
// With our own client, renewing returns redisfail.ErrElsewhere if Node isn't the node of the keys any more, or was
// replaced during the call. With the client that NewRedis got, it returns ErrServersUnknown, and doesn't call run, if
// it isn't known which servers are the right ones.
func (b *Redis) renewing(
	ctx context.Context, call *Call, run func(ctx context.Context, rdb redis.UniversalClient) error,
) error {
	key := call.routeKey()
	f := func(ctx context.Context, rdb redis.UniversalClient) error {
		err := run(ctx, rdb)
		b.dropListening(ctx, rdb, key, err)
		return err
	}
	if b.renew != nil {
		if !b.renewTopology.Follow(ctx) { // it might renew at a replaced primary
			return ErrServersUnknown
		}
		if call.RouteKey == "" {
			return f(ctx, b.renew)
		}
		node, err := b.renewTopology.clientOf(ctx, key)
		if err != nil {
			return err
		}
		return f(ctx, node)
	}
	theirs, err := b.clientOf(ctx, key)
	if err != nil {
		return err
	}
	at := b.Node(key)
	// The node is unknown, so theirs may be the client of any node. But a wrong node redirects the call.
	unnamed := at == "" && b.Traits().Redirects
	if at != call.Node && !unnamed {
		return redisfail.ErrElsewhere
	}
	if call.Node == "" { // unknown
		return f(ctx, theirs)
	}
	own, err := b.reserved.of(call.Node, func() *redis.Options {
		return b.optionsAt(call.Node, theirs, renewalConns)
	})
	if err != nil {
		return err
	}

	// Opening a connection takes several round trips and, behind a firewall that drops packets, all of the time. So the
	// first try gets half of it if there is no connection yet.
	had, opened := own.PoolStats().TotalConns > 0, own.opened.Load()
	first, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok && !had {
		first, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
	}
	err = f(first, own.Client)
	cancel()
	usable := had || own.opened.Load() > opened && !timedOut(err) // it had a connection, in time
	switch {
	case err == nil:
		return nil
	case b.during(call.Node).Err() != nil: // the client was closed because the primary was replaced
		return redisfail.ErrElsewhere
	case ctx.Err() != nil || unnamed || had && silent(err):
		return err
	case usable && !redisfail.IsUnauthenticated(err):
		return err
	}
	return f(ctx, theirs)
}

// dropListening drops a connection that is subscribed to a channel, and so refuses other commands, if err says so. err
// is the outcome of a call with a key. go-redis keeps such a connection, because it got a reply.
func (b *Redis) dropListening(ctx context.Context, rdb redis.UniversalClient, key string, err error) {
	if !redisfail.IsListening(err) {
		return
	}
	node, ok := rdb.(*redis.Client)
	if !ok {
		shape := b.topology
		if rdb == b.renew {
			shape = b.renewTopology
		}
		if node, err = shape.clientOf(ctx, key); err != nil {
			return
		}
	}
	// The pool usually returns the connection that was used last. If it returns another, a good connection is dropped,
	// and the bad one after its next refusal.
	conn := node.EphemeralConn()
	_ = conn.Process(ctx, noRetry{redis.NewCmd(ctx, "ping")}) // takes a connection from the pool
	_ = conn.Close()
}

// silent reports whether a server didn't answer over an open connection. Another connection wouldn't help.
func silent(err error) bool {
	return timedOut(err) && !redisfail.IsUnreached(err) && !errors.Is(err, context.DeadlineExceeded)
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// ownOptions returns the options of rdb for a client of our own. go-redis changes what the options point to while rdb
// connects. WithTimeout is the only way to a copy that is made under its lock.
func ownOptions(rdb *redis.Client, conns int) *redis.Options {
	read, write := rdb.Options().ReadTimeout, rdb.Options().WriteTimeout
	o := exported(rdb.WithTimeout(read).Options())
	o.WriteTimeout = write
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = conns, 0, conns, 0
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	o.Limiter = nil // an open circuit breaker of the program must not cost it its locks
	// The watchdog retries, so go-redis needn't. With one pool for all calls, the pool's size shows whether there is a
	// connection.
	o.DialerRetries, o.PipelinePoolSize = 1, -1
	// Two clients must not share a processor: NewClient would log an error, or panic if notifications are required.
	o.PushNotificationProcessor = nil
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil // it has a goroutine, and we must not read from a cache
	return o
}

// alsoOnConnect makes o call f on each new connection, after the program's own OnConnect.
func alsoOnConnect(o *redis.Options, f func(ctx context.Context, cn *redis.Conn) error) {
	programs := o.OnConnect
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if programs != nil {
			if err := programs(ctx, cn); err != nil {
				return err
			}
		}
		return f(ctx, cn)
	}
}

// exported copies the fields that a program can set. The unexported readOnly isn't copied: it makes a replica of a
// cluster accept reads, and a script would run there, too.
func exported(from *redis.Options) *redis.Options {
	var to redis.Options
	src, dst := reflect.ValueOf(from).Elem(), reflect.ValueOf(&to).Elem()
	for i := range src.NumField() {
		if src.Type().Field(i).IsExported() {
			dst.Field(i).Set(src.Field(i))
		}
	}
	return &to
}

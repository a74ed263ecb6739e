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

// renewalConns bounds the connections that renewals open to each server, beside the program's own
// pool: as many as a watchdog has calls in flight to one server.
const renewalConns = 8

// reserved are the clients for renewals, one for each server, with the options that the program's client has for that server. A second
// client of the program's kind would not do: go-redis tells only the client that it gave the program of a Sentinel's switch, or of a Ring's
// new shards, and a ClusterClient has a layout of its own.
type reserved struct {
	mu     sync.Mutex
	byAddr map[string]*ownClient
	closed bool
}

// ownClient is a client for renewals.
type ownClient struct {
	*redis.Client
	opened atomic.Int64 // connections so far that a server let in
}

// of returns the client for a server, made from its options at first.
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

// renewing runs f over the connections for renewals at the server that the call is for. Where none can be opened (the server has no room for
// clients, a firewall or the credentials let in nobody new) f runs once more, over the program's connections, which may be open: a
// renewal may be repeated.
func (b *Redis) renewing(ctx context.Context, call *Call, f func(ctx context.Context, rdb redis.UniversalClient) error) error {
	key := call.routeKey()
	run := f
	f = func(ctx context.Context, rdb redis.UniversalClient) error {
		err := run(ctx, rdb)
		b.dropListening(ctx, rdb, key, err)
		return err
	}
	if b.renew != nil {
		if !b.renewTopology.Follow(ctx) { // it might renew at a primary that was replaced
			return ErrNotNamed
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
	programs, err := b.clientOf(ctx, key)
	if err != nil {
		return err
	}
	at := b.Node(key)
	unnamed := at == "" && b.Traits().Redirects // programs may be of any node; but ours, asked for a key that it doesn't have, says so
	if at != call.Node && !unnamed {
		return redisfail.ErrElsewhere
	}
	if call.Node == "" { // not known yet
		return f(ctx, programs)
	}
	own, err := b.reserved.of(call.Node, func() *redis.Options { return b.optionsAt(call.Node, programs, renewalConns) })
	if err != nil {
		return err
	}

	// A new connection may take all of the time: a firewall that drops packets doesn't say no.
	had, opened := own.PoolStats().TotalConns > 0, own.opened.Load()
	first, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok && !had {
		first, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
	}
	err = f(first, own.Client)
	cancel()
	switch {
	case err == nil:
		return nil
	case b.during(call.Node).Err() != nil: // that is why
		return redisfail.ErrElsewhere
	case ctx.Err() != nil || silent(err) || unnamed:
		return err
	case (had || own.opened.Load() > opened) && !redisfail.IsUnauthenticated(err): // there was a connection
		return err
	}
	return f(ctx, programs)
}

// dropListening has a client drop a connection that was subscribed to a channel, and so takes no other commands, if that is the error of a call
// with a key. The server said so, and to go-redis a connection with an answer is a good one.
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
	// A pool gives the connection that was used last, as a rule; if it doesn't, a good one is dropped, and this one when it is met again.
	conn := node.EphemeralConn()
	_ = conn.Process(ctx, noRetry{redis.NewCmd(ctx, "ping")}) // takes one
	_ = conn.Close()
}

// silent reports whether a server didn't answer over a connection: it wouldn't over another either.
func silent(err error) bool {
	var op *net.OpError
	var ne net.Error
	dialing := errors.As(err, &op) && op.Op == "dial" || errors.Is(err, context.DeadlineExceeded)
	return !dialing && errors.As(err, &ne) && ne.Timeout()
}

// ownOptions are the options of rdb for a client of our own, with so many connections. What they point to is changed while rdb connects;
// WithTimeout is go-redis's one way to a copy, made under its lock.
func ownOptions(rdb *redis.Client, conns int) *redis.Options {
	read, write := rdb.Options().ReadTimeout, rdb.Options().WriteTimeout
	o := exported(rdb.WithTimeout(read).Options())
	o.WriteTimeout = write
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = conns, 0, conns, 0
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	o.Limiter = nil                             // what opens the program's circuit breaker must not cost it its locks
	o.DialerRetries, o.PipelinePoolSize = 1, -1 // retries are the watchdog's; one pool, so that its size reports whether there is a connection
	// Options has the one that rdb made. A second client may not add its handlers to it: NewClient would log an
	// error, or panic where maintenance notifications are required.
	o.PushNotificationProcessor = nil
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil // has a goroutine; nothing that we read may come from it
	return o
}

// alsoOnConnect has f called on each new connection after what the program has there.
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

// exported copies the fields that a program could set. The one that it can't has the nodes of a cluster be asked for reads as replicas: there a
// script runs on a replica, too.
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

package backend

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// Redis runs scripts and listens to channels. Acquires and releases go through the program's client. Renewals
// go through another one, so that they never queue behind the program's own commands. It is safe for concurrent use.
type Redis struct {
	rdb redis.UniversalClient
	topology
	timeout time.Duration
	pool    int // see PoolSize

	fastTimeout time.Duration // see FastTimeout

	limiting limiting

	renew         redis.UniversalClient // the program's own choice for renewals, nil: none
	renewTopology topology              // ... and its shape
	reserved      reserved              // are for renewals where there is no such choice
}

// topology is what differs between the shapes of Redis.
type topology interface {
	Prepare(ctx context.Context, key string) error
	// Node names the server that a key lives on, "" where that isn't known (yet). Keys of one node can be renewed in
	// one call. It does no I/O.
	Node(key string) string
	// Topology is another string when keys live on other servers than before, of which no server tells; "" where they do, or where it never
	// happens. It does no I/O.
	Topology() string
	// Follow asks whether calls still go to the servers that Node names, where only asking can tell: Sentinel may have named another
	// primary. Then Node names that. It is false when that isn't known as ctx ends: nothing that was done meanwhile can be relied on.
	Follow(ctx context.Context) bool
	Moved(ctx context.Context)
	// Traits doesn't change.
	Traits() Traits
	// clientOf is the program's client of the one server that key lives on.
	clientOf(ctx context.Context, key string) (*redis.Client, error)
	// at is the program's client of a node.
	at(ctx context.Context, node string) (*redis.Client, error)
	// optionsAt are the options for a client of our own to a node, with so many connections, as those of rdb, the program's client of it.
	optionsAt(node string, rdb *redis.Client, conns int) *redis.Options
	// Subscribe returns a connection that listens to no channel yet, but can to those of a node.
	Subscribe(ctx context.Context, at Endpoint) (PubSub, error)
	// Control is where a client listens to be told that its grant of a lock was taken away.
	Control(key string) Endpoint
	// during returns a context that ends when a connection of ours to a node has to.
	during(node string) context.Context
	close()
}

// NewRedis returns a backend over rdb, without any I/O. Where renew is nil, renewals get clients of their
// own with rdb's options.
func NewRedis(rdb, renew redis.UniversalClient) (*Redis, error) {
	timeout, err := readTimeout(rdb)
	if err != nil {
		return nil, err
	}
	b := &Redis{rdb: rdb, timeout: timeout, pool: poolSize(rdb)}
	b.topology = newTopology(rdb, &b.reserved)
	if renew != nil {
		if _, err := readTimeout(renew); err != nil {
			return nil, fmt.Errorf("the client given to WithRenewalClient: %w", err)
		}
		b.renew, b.renewTopology = renew, newTopology(renew, nil)
	}
	if c, ok := rdb.(*redis.Client); ok && c.Options().Limiter == nil { // which may block for longer
		b.fastTimeout = timeout
		if c.Options().ContextTimeoutEnabled {
			b.fastTimeout = min(timeout, MaxFastTimeout)
		}
	}
	return b, nil
}

// newTopology returns the shape of a client.
func newTopology(rdb redis.UniversalClient, own *reserved) topology {
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		return newCluster(c)
	case *redis.Ring:
		return ring{rdb: c}
	default:
		node := rdb.(*redis.Client) // readTimeout lets no other pass
		if node.Options().Addr == sentinelled {
			return newFailover(node, own)
		}
		return single{rdb: node}
	}
}

// readTimeout rejects clients whose calls might never return.
func readTimeout(rdb redis.UniversalClient) (time.Duration, error) {
	var read time.Duration
	none := rdb == nil
	switch c := rdb.(type) {
	case nil:
	case *redis.Client:
		if none = isZero(c); !none {
			read = c.Options().ReadTimeout
		}
	case *redis.ClusterClient:
		if none = isZero(c); !none {
			read = c.Options().ReadTimeout
		}
	case *redis.Ring:
		if none = isZero(c); !none {
			read = ringReadTimeout(c)
		}
	default:
		return 0, fmt.Errorf("a %T is not a *redis.Client, *redis.ClusterClient or *redis.Ring", rdb)
	}
	if none {
		return 0, errors.New("the client is nil, or a zero value: make one with redis.NewClient, NewFailoverClient, NewClusterClient or NewRing")
	}
	if read <= 0 {
		return 0, errors.New("the client has no ReadTimeout, so a call to a silent server would never return; set one (go-redis's default is fine)")
	}
	return min(read, Longest), nil
}

// poolSize is that of a client which has a readTimeout.
func poolSize(rdb redis.UniversalClient) int {
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		return c.Options().PoolSize
	case *redis.Ring:
		for _, shard := range c.GetShardClients() {
			return shard.Options().PoolSize
		}
		return c.Options().PoolSize // the shards are yet to come: 0, if it is to be the default
	default:
		return rdb.(*redis.Client).Options().PoolSize
	}
}

// isZero reports whether a client wasn't made by go-redis, whose methods panic then.
func isZero[T any](c *T) bool { return c == nil || reflect.ValueOf(c).Elem().IsZero() }

// ringReadTimeout looks at a shard: the options of the Ring itself are as the program gave them, without the defaults.
func ringReadTimeout(c *redis.Ring) time.Duration {
	for _, shard := range c.GetShardClients() {
		return shard.Options().ReadTimeout
	}
	if read := c.Options().ReadTimeout; read != 0 {
		return read
	}
	return 5 * time.Second // go-redis's default; the shards are yet to come
}

// noRetry makes go-redis send a command once only: it would re-run a script up to three times, unseen. In a
// pipeline it does so for all commands.
type noRetry struct{ *redis.Cmd }

func (noRetry) NoRetry() bool { return true }

// command is the call as go-redis has it, with its arguments in args if that has room for them.
func (call *Call) command(ctx context.Context, args []any) noRetry {
	if args == nil {
		args = make([]any, 0, 3+len(call.Keys)+len(call.Args))
	}
	if call.SendSource {
		args = append(args, "eval", call.Script.source)
	} else {
		args = append(args, "evalsha", call.Script.digest)
	}
	args = append(args, len(call.Keys))
	args = append(args, call.Boxed...)
	for _, k := range call.Keys[len(call.Boxed):] {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, call.Args...)...)
	cmd.SetStepCount(1) // else a cluster client asks a node for its commands before its first, and that may be a silent one
	return noRetry{cmd}
}

// fastContext is a ctx with an earlier deadline, at which nothing is told to Done: go-redis reads the deadline.
type fastContext struct {
	context.Context
	deadline time.Time
	args     [13]any // room for those of the call that it is for: one allocation for both
}

func (c *fastContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Prepare learns what Node needs to know. It is called before the first Eval, again until it has
// succeeded once, and does I/O only where there is more than one server.
func (b *Redis) Prepare(ctx context.Context, key string) error {
	if err := b.topology.Prepare(ctx, key); err != nil {
		return err
	}
	return b.limitedBy(ctx, b.topology, key)
}

// Eval runs a script on the server, exactly once: nothing below it may send the call again.
// The context may be ignored until Timeout has passed.
func (b *Redis) Eval(ctx context.Context, call Call) (any, error) {
	b.beforeSent(&call)
	reply, err := b.eval(ctx, call)
	return reply, b.afterSent(&call, err)
}

func (b *Redis) eval(ctx context.Context, call Call) (any, error) {
	rdb := b.rdb
	var args []any
	switch {
	case call.Fast: // a client of rdb.WithTimeout would be without its hooks
		fast := &fastContext{Context: ctx, deadline: time.Now().Add(b.fastTimeout)}
		ctx, args = fast, fast.args[:0]
	case call.Renew:
		var cmd noRetry
		err := b.renewing(ctx, &call, func(ctx context.Context, rdb redis.UniversalClient) error {
			cmd = call.command(ctx, nil)
			return rdb.Process(ctx, cmd)
		})
		if err != nil {
			return b.redirected(ctx, &call, err)
		}
		return cmd.Result()
	case call.RouteKey != "":
		var err error
		if rdb, err = b.clientOf(ctx, call.RouteKey); err != nil {
			return nil, err
		}
	}
	cmd := call.command(ctx, args)
	if err := rdb.Process(ctx, cmd); err != nil {
		b.dropListening(ctx, rdb, call.routeKey(), err)
		return nil, err
	}
	return cmd.Result()
}

// EvalEach runs scripts in one round trip to each node. The calls fail one by one.
func (b *Redis) EvalEach(ctx context.Context, calls []Call) []Result {
	results := make([]Result, len(calls))
	for i := range calls {
		b.beforeSent(&calls[i])
	}
	defer func() {
		for i := range results {
			results[i].Err = b.afterSent(&calls[i], results[i].Err)
		}
	}()
	run := func(ctx context.Context, rdb redis.UniversalClient) error {
		cmds := make([]noRetry, len(calls))
		pipe := rdb.Pipeline()
		for i := range calls {
			cmds[i] = calls[i].command(ctx, nil)
			_ = pipe.Process(ctx, cmds[i])
		}
		_, err := pipe.Exec(ctx) // the first error; each command has its own
		for i, cmd := range cmds {
			results[i].Reply, results[i].Err = cmd.Result()
			if results[i].Err == nil && results[i].Reply == nil {
				results[i].Err = err
			}
		}
		return err
	}
	if !calls[0].Renew {
		b.dropListening(ctx, b.rdb, calls[0].routeKey(), run(ctx, b.rdb))
		return results
	}
	err := b.renewing(ctx, &calls[0], run)
	for i := range results {
		r := &results[i]
		if r.Reply == nil && r.Err == nil { // there was no way to the server
			r.Err = err
		}
		if r.Err != nil {
			r.Reply, r.Err = b.redirected(ctx, &calls[i], r.Err)
		}
	}
	return results
}

// EvalWait runs a script and then waits until so many replicas have its writes. It says how many have. WAIT speaks of the writes of
// its own connection, so both go through one, of the one server that has the key. There go-redis follows no redirection of a cluster.
func (b *Redis) EvalWait(ctx context.Context, call Call, replicas int, timeout time.Duration) (reply any, acked int, err error) {
	rdb, err := b.clientOf(ctx, call.Keys[0])
	if err != nil {
		return nil, 0, err
	}
	b.beforeSent(&call)
	defer func() {
		b.dropListening(ctx, rdb, call.routeKey(), err)
		err = b.afterSent(&call, err)
	}()
	reply, acked, err = evalWait(ctx, rdb, call, replicas, timeout, false)
	if c, ok := b.topology.(*cluster); ok && err != nil {
		if addr, asking, ok := redisfail.Redirection(err); ok {
			if rdb, lost := c.at(ctx, addr); lost == nil {
				return evalWait(ctx, rdb, call, replicas, timeout, asking)
			}
		}
	}
	return reply, acked, err
}

// evalWait is EvalWait on one server. Where WAIT alone failed there is a reply and an error.
func evalWait(ctx context.Context, rdb *redis.Client, call Call, replicas int, timeout time.Duration, asking bool) (any, int, error) {
	cmd := call.command(ctx, nil)
	wait := redis.NewIntCmd(ctx, "wait", replicas, timeout.Milliseconds())
	pipe := rdb.Pipeline()
	if asking {
		_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
	}
	_ = pipe.Process(ctx, cmd)
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx)
	reply, err := cmd.Result()
	if err != nil {
		return nil, 0, err
	}
	acked, err := wait.Result()
	if err != nil {
		return reply, 0, fmt.Errorf("WAIT: %w", err)
	}
	return reply, int(acked), nil
}

// redirected runs a renewal where a node of a cluster sends it, or returns the node's answer where it sends it nowhere.
func (b *Redis) redirected(ctx context.Context, call *Call, answer error) (any, error) {
	addr, asking, sent := redisfail.Redirection(answer)
	c, ok := b.topology.(*cluster)
	if !sent || !ok || len(call.Keys) == 0 {
		return nil, answer
	}
	node, err := c.at(ctx, addr)
	if err != nil { // go-redis has yet to hear of it
		return nil, answer
	}
	own, err := b.reserved.of(addr, func() *redis.Options { return c.optionsAt(addr, node, renewalConns) })
	if err != nil {
		return nil, err
	}
	cmd := call.command(ctx, nil)
	pipe := own.Pipeline()
	if asking {
		_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
	}
	_ = pipe.Process(ctx, cmd)
	_, _ = pipe.Exec(ctx)
	return cmd.Result()
}

// Moved says that a key was not where Node had it, or that nobody answered there.
func (b *Redis) Moved(ctx context.Context) {
	b.topology.Moved(ctx)
	if b.renewTopology != nil {
		b.renewTopology.Moved(ctx)
	}
}

// FastTimeout returns after how long a call with Fast set gives up: MaxFastTimeout, or Timeout where calls can't be made to; 0 where not even that is
// known, as they may be redirected.
func (b *Redis) FastTimeout() time.Duration { return b.fastTimeout }

// PoolSize is how many connections the program's client has to one server, at most.
func (b *Redis) PoolSize() int { return b.pool }

// Timeout is how long the server's answer is waited for.
func (b *Redis) Timeout() time.Duration { return b.timeout }

// Close gives back what was opened here; never the program's own client.
func (b *Redis) Close() error {
	b.close()
	if b.renewTopology != nil {
		b.renewTopology.close()
	}
	return b.reserved.close()
}

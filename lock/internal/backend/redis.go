package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// Redis runs scripts and listens to channels. Acquires and releases go through the program's client, or over the stream
// (see OpenStream). Renewals go through other clients if these can connect (see renewing), so that they don't queue
// behind the program's commands. It is safe for concurrent use.
type Redis struct {
	rdb redis.UniversalClient
	topology
	timeout time.Duration
	pool    int // see PoolSize

	fastTimeout time.Duration // see FastTimeout

	limiting limiting
	stream   *stream

	renew         redis.UniversalClient // the program's client for renewals; nil: none
	renewTopology topology              // of renew; nil: none
	reserved      reserved              // our own clients
}

// topology has what differs between a single server, Sentinel, a Cluster and a Ring.
type topology interface {
	Prepare(ctx context.Context, key string) error
	// Node returns the name of the server on which a key lives; "": unknown. It does no I/O.
	Node(key string) string
	// Topology returns a string that changes when keys move to other servers. It is always "" if nobody needs to
	// compare it: servers report moves, Follow finds them, or keys can't move. For a layout that the program makes up,
	// the string covers only the first slot; Follow finds the other moves. Topology does no I/O.
	Topology() string
	// Follow asks which servers are the right ones, if only asking can tell: Sentinel may have named another primary.
	// Node then returns them. It reports false if ctx ends before the answer (see question.answered), or if go-redis
	// doesn't use the right servers yet. Then nothing that was done since the last answer can be relied on.
	Follow(ctx context.Context) bool
	Moved(ctx context.Context)
	// Traits always returns the same value.
	Traits() Traits
	// clientOf returns the program's client of the server on which a key lives.
	clientOf(ctx context.Context, key string) (*redis.Client, error)
	// at returns the program's client of a node.
	at(ctx context.Context, node string) (*redis.Client, error)
	// optionsAt returns options for a client of our own to a node, made from those of rdb, a client of the program.
	optionsAt(node string, rdb *redis.Client, conns int) *redis.Options
	// Subscribe returns a connection for the channels of an endpoint. It listens to none yet.
	Subscribe(ctx context.Context, at Endpoint) (PubSub, error)
	// Control returns the endpoint where a holder of the lock with a key listens to its client's control channel.
	Control(key string) Endpoint
	// during returns a context that ends when our connections to a node must be closed.
	during(node string) context.Context
	close()
}

// NewRedis returns a backend over rdb, without any I/O. If renew is nil, renewals get clients of their own, with the
// options of rdb except for what ownOptions changes.
func NewRedis(rdb, renew redis.UniversalClient) (*Redis, error) {
	timeout, pool, err := limitsOf(rdb)
	if err != nil {
		return nil, err
	}
	b := &Redis{rdb: rdb, timeout: timeout, pool: pool}
	b.topology, b.stream = newTopology(rdb, &b.reserved), newStream(rdb)
	if renew != nil {
		if _, _, err := limitsOf(renew); err != nil {
			return nil, fmt.Errorf("the client given to WithRenewalClient: %w", err)
		}
		b.renew, b.renewTopology = renew, newTopology(renew, nil)
	}
	if c, ok := rdb.(*redis.Client); ok && c.Options().Limiter == nil { // a Limiter may block longer
		b.fastTimeout = timeout
		if c.Options().ContextTimeoutEnabled {
			b.fastTimeout = min(timeout, MaxFastTimeout)
		}
	}
	return b, nil
}

// newTopology returns the topology of a client.
func newTopology(rdb redis.UniversalClient, own *reserved) topology {
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		return newCluster(c)
	case *redis.Ring:
		return ring{rdb: c}
	default:
		node := rdb.(*redis.Client) // limitsOf accepts no other type
		if node.Options().Addr == sentinelled {
			return newFailover(node, own)
		}
		return single{rdb: node}
	}
}

// limitsOf returns the ReadTimeout and the PoolSize of a client; a PoolSize of 0 means go-redis's default. It rejects
// nil, clients of other types, and clients whose calls might never return.
func limitsOf(rdb redis.UniversalClient) (read time.Duration, pool int, err error) {
	switch rdb.(type) {
	case nil, *redis.Client, *redis.ClusterClient, *redis.Ring:
	default:
		return 0, 0, fmt.Errorf("a %T is not a *redis.Client, *redis.ClusterClient or *redis.Ring", rdb)
	}
	if v := reflect.ValueOf(rdb); rdb == nil || v.IsNil() || v.Elem().IsZero() { // its methods would panic
		return 0, 0, errors.New("the client is nil, or a zero value: make one with redis.NewClient, NewFailoverClient, NewClusterClient or NewRing")
	}
	switch c := rdb.(type) {
	case *redis.Client:
		read, pool = c.Options().ReadTimeout, c.Options().PoolSize
	case *redis.ClusterClient:
		read, pool = c.Options().ReadTimeout, c.Options().PoolSize
	case *redis.Ring:
		// The options of the Ring itself lack go-redis's defaults. A shard's have them, but there may be no shard yet.
		read, pool = cmp.Or(c.Options().ReadTimeout, 5*time.Second), c.Options().PoolSize
		if shards := c.GetShardClients(); len(shards) > 0 {
			read, pool = shards[0].Options().ReadTimeout, shards[0].Options().PoolSize
		}
	}
	if read <= 0 {
		return 0, 0, errors.New("the client has no ReadTimeout, so a call to a silent server would never return; set one (go-redis's default is fine)")
	}
	return min(read, Longest), pool, nil
}

// noRetry keeps go-redis from sending a command again after a failure in which it may have run. With default options
// go-redis may run a script up to four times, without saying so. One such command protects its whole pipeline. go-redis
// still repeats a command that the server refused to run, after MOVED for example.
type noRetry struct{ *redis.Cmd }

func (noRetry) NoRetry() bool { return true }

// command returns the call as a command of go-redis. Its arguments go into args if they fit.
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
	cmd.SetStepCount(1) // otherwise a ClusterClient first asks a node for COMMAND, and that node may be silent
	return noRetry{cmd}
}

// fastContext is a ctx with an earlier deadline, which go-redis reads. Its Done ignores that deadline.
type fastContext struct {
	context.Context
	deadline time.Time
	args     [13]any // room for the call's arguments: one allocation for both
}

func (c *fastContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Prepare learns what Node needs to know. It is called before the first Eval, and again until it has succeeded once. It
// does I/O only if there may be several servers.
func (b *Redis) Prepare(ctx context.Context, key string) error {
	if err := b.topology.Prepare(ctx, key); err != nil {
		return err
	}
	rdb, err := b.clientOf(ctx, key)
	if err == nil && rdb.Options().Limiter != nil {
		b.limiting.on.Store(true)
	}
	return err
}

// Eval runs a script at most once: nothing below it may send the call again, unless the server refused it. Only a
// renewal may run twice: see renewing. Eval may ignore ctx until Timeout has passed.
func (b *Redis) Eval(ctx context.Context, call Call) (any, error) {
	b.beforeSent(&call)
	reply, err := b.eval(ctx, call)
	return reply, b.afterSent(&call, err)
}

func (b *Redis) eval(ctx context.Context, call Call) (any, error) {
	rdb := b.rdb
	var args []any
	switch {
	case call.Fast: // not by rdb.WithTimeout: that client lacks rdb's hooks
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
	process := rdb.Process
	if call.Stream {
		if p := b.stream.current(); p != nil {
			process = p.hooked.Process
		}
	}
	if err := process(ctx, cmd); err != nil {
		b.dropListening(ctx, rdb, call.routeKey(), err)
		return nil, err
	}
	return cmd.Result()
}

// EvalEach runs scripts in one round trip to each node. Either all are renewals of one node, or none is a renewal. Each
// call has its own error.
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
		if r.Reply == nil && r.Err == nil { // run wasn't called
			r.Err = err
		}
		if r.Err != nil {
			r.Reply, r.Err = b.redirected(ctx, &calls[i], r.Err)
		}
	}
	return results
}

// EvalWait runs a script and then waits until the given number of replicas have its writes, for timeout at most. acked
// is how many have them. WAIT waits for the writes of its own connection, so both commands must use one connection, to
// the server that has the key. go-redis doesn't follow redirections there, so EvalWait does.
func (b *Redis) EvalWait(
	ctx context.Context, call Call, replicas int, timeout time.Duration,
) (reply any, acked int, err error) {
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

// evalWait is EvalWait on one server. If only WAIT failed, it returns a reply and an error.
func evalWait(
	ctx context.Context, rdb *redis.Client, call Call, replicas int, timeout time.Duration, asking bool,
) (any, int, error) {
	cmd := call.command(ctx, nil)
	wait := redis.NewIntCmd(ctx, "wait", replicas, timeout.Milliseconds())
	together(ctx, rdb, asking, cmd, wait)
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

// together sends commands to a server over one connection, after ASKING if asking. Each command gets its own result.
func together(ctx context.Context, rdb *redis.Client, asking bool, cmds ...redis.Cmder) {
	if asking {
		cmds = append([]redis.Cmder{redis.NewCmd(ctx, "asking")}, cmds...)
	}
	pipe := rdb.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx)
}

// redirected follows answer, the error of a renewal, if it is a redirection by a node of a cluster. It returns answer
// if it is another error, if the call declares no keys, or if go-redis doesn't know the new node yet.
func (b *Redis) redirected(ctx context.Context, call *Call, answer error) (any, error) {
	addr, asking, sent := redisfail.Redirection(answer)
	c, ok := b.topology.(*cluster)
	if !sent || !ok || len(call.Keys) == 0 {
		return nil, answer
	}
	node, err := c.at(ctx, addr)
	if err != nil { // go-redis doesn't know the node yet
		return nil, answer
	}
	own, err := b.reserved.of(addr, func() *redis.Options { return c.optionsAt(addr, node, renewalConns) })
	if err != nil {
		return nil, err
	}
	cmd := call.command(ctx, nil)
	together(ctx, own.Client, asking, cmd)
	return cmd.Result()
}

// Moved makes go-redis look again, in the background, where keys live. It does nothing for a single server or a Ring.
// It is called when a key may have left the server that Node names.
func (b *Redis) Moved(ctx context.Context) {
	b.topology.Moved(ctx)
	if b.renewTopology != nil {
		b.renewTopology.Moved(ctx)
	}
}

// FastTimeout returns how long a call with Fast waits for its reply, once it has a connection. That is Timeout, and
// MaxFastTimeout at most unless go-redis ignores deadlines. It is 0 if not even Timeout bounds the wait, because the
// client has several servers or a Limiter.
func (b *Redis) FastTimeout() time.Duration { return b.fastTimeout }

// HasStream reports whether calls with Stream share a connection, on which they don't wait for each other's replies.
// Otherwise they use the program's pool.
func (b *Redis) HasStream() bool { return b.stream.current() != nil }

// OpenStream begins to open the connection for calls with Stream. It does nothing if the connection is open or being
// opened, if there can be none, after CloseStream, or for streamPause after the last connection was lost or couldn't be
// opened.
func (b *Redis) OpenStream() { b.stream.open() }

// CloseStream closes the connection for calls with Stream for ever. It waits for the replies to the calls in flight:
// for ReadTimeout, if the server is silent.
func (b *Redis) CloseStream() { b.stream.close() }

// PoolSize returns how many connections the program's client may have to one server; 0: unknown.
func (b *Redis) PoolSize() int { return b.pool }

// Timeout returns how long the client waits for a reply: the ReadTimeout of the program's client.
func (b *Redis) Timeout() time.Duration { return b.timeout }

// Close closes the clients that renewals use, but never the program's own. Callers close what Dedicated returned, and
// call CloseStream.
func (b *Redis) Close() error {
	b.close()
	if b.renewTopology != nil {
		b.renewTopology.close()
	}
	return b.reserved.close()
}

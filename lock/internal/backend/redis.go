package backend

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// renewalConns bounds the connections that renewals open to each server, beside the program's own
// pool: as many as a watchdog has calls in flight to one server.
const renewalConns = 8

// Redis is the backend over go-redis. Acquires and releases go through the program's client. Renewals
// go through another one, so that they never queue behind the program's own commands.
type Redis struct {
	rdb redis.UniversalClient
	topology
	timeout time.Duration

	soon time.Duration // see Soon

	reserved sync.Once // the connections for renewals are made with the first one
	renew    redis.UniversalClient
	shards   shardClients                        // a Ring's, in place of renew
	owned    bool                                // renew was made here
	layout   atomic.Pointer[redis.ClusterClient] // renew, where it has a layout of its own to reload
}

// topology is what differs between the shapes of Redis.
type topology interface {
	Prepare(ctx context.Context, key string) error
	Node(key string) string
	Moved(ctx context.Context)
	Traits() Traits
	// clientOf is the client of the one server that key lives on.
	clientOf(ctx context.Context, rdb redis.UniversalClient, key string) (*redis.Client, error)
	// at is the client of a node.
	at(ctx context.Context, node string) (*redis.Client, error)
	Subscribe(ctx context.Context, at Station) (PubSub, error)
	Control(key string) Station
}

// NewRedis returns a backend over rdb, without any I/O. Where renew is nil, renewals get a client of their
// own with rdb's options.
func NewRedis(rdb, renew redis.UniversalClient) (*Redis, error) {
	timeout, err := readTimeout(rdb)
	if err != nil {
		return nil, err
	}
	b := &Redis{rdb: rdb, renew: renew, timeout: timeout}
	if renew != nil {
		if _, err := readTimeout(renew); err != nil {
			return nil, fmt.Errorf("the client given to WithRenewalClient: %w", err)
		}
		b.keepLayout()
	}
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		b.topology = newCluster(c)
	case *redis.Ring:
		b.topology = ring{c}
	case *redis.Client:
		b.topology = single{c}
		b.soon = timeout
		if c.Options().ContextTimeoutEnabled {
			b.soon = min(timeout, Unnoticed)
		}
	}
	return b, nil
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
	return read, nil
}

// isZero says whether a client wasn't made by go-redis, whose methods panic then.
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

// renewals is the client that the renewals of a node's keys go through.
func (b *Redis) renewals(node string) (redis.UniversalClient, error) {
	if r, ok := b.rdb.(*redis.Ring); ok && b.renew == nil {
		return b.shards.of(r, node)
	}
	b.reserved.Do(func() {
		if b.renew == nil {
			b.renew, b.owned = reserve(b.rdb), true
			b.keepLayout()
		}
	})
	if b.renew == nil { // closed before the first
		return nil, redis.ErrClosed
	}
	return b.renew, nil
}

// shardClients are the clients for renewals of a Ring's shards. A second Ring would not do: it wouldn't hear of SetAddrs, and
// might think another shard dead than the program's.
type shardClients struct {
	mu     sync.Mutex
	byAddr map[string]*redis.Client
	closed bool
}

// of returns the client of the Ring's shard with an address.
func (s *shardClients) of(r *redis.Ring, addr string) (*redis.Client, error) {
	shard, err := ring{r}.at(context.Background(), addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, redis.ErrClosed
	}
	c := s.byAddr[addr]
	if c == nil {
		c = reserve(shard).(*redis.Client)
		if s.byAddr == nil {
			s.byAddr = make(map[string]*redis.Client)
		}
		s.byAddr[addr] = c
	}
	return c, nil
}

func (s *shardClients) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, c := range s.byAddr {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// keepLayout notes that the client for renewals knows a layout of its own.
func (b *Redis) keepLayout() {
	if c, ok := b.renew.(*redis.ClusterClient); ok {
		b.layout.Store(c)
	}
}

// Moved implements Backend. go-redis itself looks for a new layout when it is told MOVED, but not when a node is gone; and else
// once a minute.
func (b *Redis) Moved(ctx context.Context) {
	b.topology.Moved(ctx)
	if c := b.layout.Load(); c != nil {
		c.ReloadState(ctx)
	}
}

// reserve returns a client with the same options as rdb and a small pool of its own.
func reserve(rdb redis.UniversalClient) redis.UniversalClient {
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		o := *c.Options()
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = renewalConns, 0, renewalConns, 0
		o.MaxRetries, o.ContextTimeoutEnabled = -1, true
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		l := &layout{rdb: c}
		o.Addrs = slices.Clone(o.Addrs) // go-redis appends to the one that it was given
		o.ClusterSlots, o.NewClient = l.slots, l.client(o.NewClient)
		return redis.NewClusterClient(&o)
	default:
		o := ownOptions(rdb.(*redis.Client), renewalConns)
		return redis.NewClient(&o)
	}
}

// ownOptions are the options of rdb for a client of our own, with so many connections. What they point to is changed while rdb connects;
// WithTimeout is go-redis's one way to a copy, made under its lock.
func ownOptions(rdb *redis.Client, conns int) redis.Options {
	read, write := rdb.Options().ReadTimeout, rdb.Options().WriteTimeout
	o := *rdb.WithTimeout(read).Options()
	o.WriteTimeout = write
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = conns, 0, conns, 0
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	// Options has the one that rdb made. A second client may not add its handlers to it: NewClient would log an
	// error, or panic where maintenance notifications are required.
	o.PushNotificationProcessor = nil
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil // has a goroutine; nothing that we read may come from it
	return o
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
	if call.Full {
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

// soonContext is a ctx with an earlier deadline, at which nothing is told to Done: go-redis reads the deadline.
type soonContext struct {
	context.Context
	deadline time.Time
	args     [13]any // room for those of the call that it is for: one allocation for both
}

func (c *soonContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Eval implements Backend.
func (b *Redis) Eval(ctx context.Context, call Call) (any, error) {
	rdb := b.rdb
	var args []any
	switch {
	case call.Soon: // a client of rdb.WithTimeout would be without its hooks
		soon := &soonContext{Context: ctx, deadline: time.Now().Add(b.soon)}
		ctx, args = soon, soon.args[:0]
	case call.Renew:
		var err error
		if rdb, err = b.renewals(call.Node); err != nil {
			return nil, err
		}
	case call.Near != "":
		var err error
		if rdb, err = b.clientOf(ctx, b.rdb, call.Near); err != nil {
			return nil, err
		}
	}
	cmd := call.command(ctx, args)
	if err := rdb.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// EvalEach implements Backend.
func (b *Redis) EvalEach(ctx context.Context, calls []Call) []Result {
	rdb := b.rdb
	results := make([]Result, len(calls))
	if calls[0].Renew {
		var err error
		if rdb, err = b.renewals(calls[0].Node); err != nil {
			for i := range results {
				results[i].Err = err
			}
			return results
		}
	}
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
	return results
}

// EvalWait implements Backend. WAIT speaks of the writes of its own connection, so both go through one, of the one
// server that has the key. There go-redis follows no redirection of a cluster.
func (b *Redis) EvalWait(ctx context.Context, call Call, replicas int, timeout time.Duration) (any, int, error) {
	rdb, err := b.clientOf(ctx, b.rdb, call.Keys[0])
	if err != nil {
		return nil, 0, err
	}
	reply, acked, err := evalWait(ctx, rdb, call, replicas, timeout, false)
	if c, ok := b.topology.(*cluster); ok && err != nil {
		if addr, asking, ok := redirection(err); ok {
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

// redirection reads the answer of a node that a key is at another, for good or, asking, while its slot moves.
func redirection(err error) (addr string, asking, ok bool) {
	words := strings.Fields(err.Error())
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return "", false, false
	}
	return words[2], words[0] == "ASK", true
}

// Soon implements Backend.
func (b *Redis) Soon() time.Duration { return b.soon }

// Timeout implements Backend.
func (b *Redis) Timeout() time.Duration { return b.timeout }

// Close implements Backend.
func (b *Redis) Close() error {
	b.reserved.Do(func() {}) // no renewal starts any more
	if b.owned {
		return b.renew.Close()
	}
	return b.shards.close()
}

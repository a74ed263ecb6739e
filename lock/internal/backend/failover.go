package backend

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// sentinelled is the address that go-redis gives a client made by NewFailoverClient.
const sentinelled = "FailoverClient"

// ErrServersUnknown is the outcome of a renewal if it isn't known whether its server still is the right one.
var ErrServersUnknown = redisfail.NewTimeout("lockdog: timeout: no Sentinel has said in time which server is the primary")

var errNoPrimary = errors.New("lockdog: no Sentinel has named a primary")

// failover is a primary that Sentinel names. An old primary may still be alive and act as the primary, because it hung
// until it was replaced, or is cut off from Sentinel. go-redis closes the connections to it, but only those of the
// client that NewFailoverClient returned. So each client of ours connects to one address only, and is closed when
// another primary is named.
//
// go-redis doesn't say which server is the primary. But its dialer asks Sentinel each time it dials, and then makes the
// program's client switch to that server, too.
type failover struct {
	single
	reserved *reserved
	primary  atomic.Pointer[primary] // nil while it isn't known

	who    *question // who is the primary
	ctx    context.Context
	cancel context.CancelFunc
}

// primary is the primary that was named last.
type primary struct {
	addr   string
	ctx    context.Context // ends when another is named, or with the client
	cancel context.CancelFunc
}

func newFailover(rdb *redis.Client, reserved *reserved) *failover {
	f := &failover{single: single{rdb: rdb}, reserved: reserved}
	f.who = newQuestion(f.ask)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Prepare learns which server is the primary. It never fails: if there is no answer, the calls report what is wrong.
func (f *failover) Prepare(ctx context.Context, _ string) error {
	f.Follow(ctx)
	return nil
}

// Node returns the address of the primary that was named last.
func (f *failover) Node(string) string {
	if p := f.primary.Load(); p != nil {
		return p.addr
	}
	return ""
}

// Moved asks Sentinel in the background.
func (f *failover) Moved(context.Context) { go f.who.answered(f.ctx) }

// Follow asks Sentinel. It also reports true if no Sentinel can be reached: go-redis, too, keeps its connections then.
// If ctx ends before the answer, for example because the Sentinel is silent, see question.answered.
func (f *failover) Follow(ctx context.Context) bool { return f.who.answered(ctx) }

// ask makes go-redis's dialer ask Sentinel.
func (f *failover) ask() error {
	conn, err := f.rdb.Options().Dialer(f.ctx, "tcp", sentinelled)
	if err != nil {
		// An unwrapped *net.OpError means that a primary was named, but can't be reached. Errors of Sentinels are
		// wrapped.
		if op, ok := err.(*net.OpError); ok && op.Op == "dial" && op.Addr != nil { //nolint:errorlint // see above
			f.found(op.Addr.String())
			return nil
		}
		return err
	}
	f.found(conn.RemoteAddr().String())
	_ = conn.Close()
	return nil
}

// found notes the address of the primary, and closes our connections to the previous one.
func (f *failover) found(addr string) {
	ctx, cancel := context.WithCancel(f.ctx)
	next := &primary{addr, ctx, cancel}
	for {
		old := f.primary.Load()
		switch {
		case old != nil && old.addr == addr:
			cancel()
			return
		case !f.primary.CompareAndSwap(old, next):
			continue
		case old != nil:
			old.cancel()
			if f.reserved != nil {
				f.reserved.drop(old.addr)
			}
		}
		return
	}
}

// optionsAt returns the options of a client that connects to node only. Dialing fails if another primary was named.
func (f *failover) optionsAt(node string, rdb *redis.Client, conns int) *redis.Options {
	o := ownOptions(rdb, conns)
	o.Addr = node
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := dial(ctx, network, sentinelled)
		if err != nil {
			return nil, err
		}
		if addr := conn.RemoteAddr().String(); addr != node {
			_ = conn.Close()
			f.found(addr)
			return nil, redisfail.ErrElsewhere
		}
		return conn, nil
	}
	return o
}

// during returns a context that ends when node isn't the primary any more.
func (f *failover) during(node string) context.Context {
	if p := f.primary.Load(); p != nil && p.addr == node {
		return p.ctx
	}
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	return gone
}

// Subscribe connects to the primary. The connection is closed when another primary is named.
func (f *failover) Subscribe(ctx context.Context, _ Endpoint) (PubSub, error) {
	if f.Node("") == "" {
		f.Follow(ctx)
	}
	node := f.Node("")
	if node == "" {
		return nil, errNoPrimary
	}
	c, err := f.reserved.of(node, func() *redis.Options { return f.optionsAt(node, f.rdb, renewalConns) })
	if err != nil {
		return nil, err
	}
	ps := &followingPubSub{redisPubSub: redisPubSub{c.Subscribe(ctx)}}
	ps.stop = context.AfterFunc(f.during(node), func() { _ = ps.PubSub.Close() })
	return ps, nil
}

// followingPubSub is closed when another primary is named.
type followingPubSub struct {
	redisPubSub
	stop func() bool
}

func (p *followingPubSub) Close() error {
	p.stop()
	return p.redisPubSub.Close()
}

func (f *failover) close() { f.cancel() }

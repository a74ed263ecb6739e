// Package agentlink is a client's connection to the agent of its machine (package lock/agent), and the lines that the
// two exchange.
//
// The agent is never trusted with a deadline. A lease counts from before the request to the agent was sent, by this
// process's own clock. What the agent doesn't report as renewed, the client renews by itself (package renewal).
package agentlink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/internal/unixsocket"
)

var (
	// ErrResting is the error of a call during the rest that follows a failure. The agent isn't asked.
	ErrResting = errors.New("lockdog: the agent isn't asked, because it failed a moment ago")
	// ErrUseless is a reason to rest: Redis has renewed leases that the agent reported as gone.
	ErrUseless = errors.New("lockdog: the agent finds no lock that is there; does it use the same database of Redis?")

	// ErrLayout says for which clients of go-redis there is no agent.
	ErrLayout = errors.New("with a Ring, or with ClusterOptions.ClusterSlots, each program decides by itself which server has a key")

	errStale  = errors.New("lockdog: another request has failed")
	errClosed = errors.New("lockdog: the client is closed")
)

// The rest after a failure doubles from leastRest to mostRest. It varies by ±25 %, so that the clients of an agent that
// is back don't all come at once.
const (
	leastRest = 5 * time.Second
	mostRest  = time.Minute
)

// Link asks the agent to renew leases, and tells it which locks to free if this process dies. It connects when it is
// first needed, and again after a failure. It is safe for concurrent use.
type Link struct {
	Config

	holds holds

	turn chan struct{} // has an element while nobody connects or sends; whoever takes it may use conn
	conn *conn         // nil: none

	stale atomic.Bool // conn must not be used any more

	mu        sync.Mutex
	rest      time.Duration // the last one; 0: there was none for a while
	restUntil time.Time
}

// Config says how a Link connects, and whom it tells of failures. Its functions must not block.
type Config struct {
	Path   string // of the agent's socket
	Secret string // of the client's owners: see script.DigitsOf
	// Changed is called with the error of the first request that fails, and with nil when requests have succeeded again
	// for a minute.
	Changed func(err error)
	// Told is called with an error if the agent couldn't be told which locks are held, and then with nil when it could.
	Told func(err error)
}

// New returns a link without a connection.
func New(cfg Config) *Link {
	l := &Link{Config: cfg, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	h := &l.holds
	h.held, h.told, h.changed = map[string]*Hold{}, map[string]struct{}{}, map[string]struct{}{}
	h.look = make(chan struct{}, 1)
	h.ctx, h.end = context.WithCancel(context.Background())
	return l
}

// Close closes the connection. There must be no call of Renew under way or later. A nil Link needs no Close.
func (l *Link) Close() {
	if l == nil {
		return
	}
	l.holds.mu.Lock()
	l.holds.end()
	done := l.holds.done
	l.holds.mu.Unlock()
	if done != nil {
		<-done
	}
	<-l.turn
	if l.conn != nil {
		l.conn.close(errClosed)
		<-l.conn.done
	}
}

// Renew asks the agent to renew leases of a node, and returns the indices of those that it has renewed. The error says
// why others weren't. ctx must have a deadline. Renew takes half of the time until then at most, so that there is time
// to ask Redis. After a failure, or if the agent has renewed nothing and says why, Renew fails at once for a while.
func (l *Link) Renew(ctx context.Context, node string, leases []Lease) (renewed []int, err error) {
	if l.restsFor(time.Now()) > 0 {
		return nil, ErrResting
	}
	end, _ := ctx.Deadline()
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, min(time.Until(end)/2, MaxTime))
	defer cancel()
	renewed, refused, err := l.renewAll(limited, node, leases)
	failed := err
	if len(renewed) == 0 {
		failed = cmp.Or(err, refused)
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled): // the client is being closed
	case failed != nil:
		l.Rest(failed)
	case len(renewed) > 0:
		l.succeeded(began)
	}
	return renewed, errors.Join(refused, err)
}

// renewAll sends requests of as many leases as one may have, and waits for the replies. refused is what the agent says.
func (l *Link) renewAll(ctx context.Context, node string, leases []Lease) (renewed []int, refused, err error) {
	var replies []<-chan result
	var sizes []int
	for rest := leases; len(rest) > 0 && err == nil; {
		n := fitting(rest)
		var reply <-chan result
		if reply, err = l.send(ctx, node, rest[:n]); err == nil {
			replies, sizes = append(replies, reply), append(sizes, n)
		}
		rest = rest[n:]
	}
	first := 0
	for n, reply := range replies {
		var r result
		select {
		case r = <-reply:
		case <-ctx.Done():
			select {
			case r = <-reply: // this process didn't run for a while
			default:
				r.err = fmt.Errorf("lockdog: the agent doesn't answer: %w", ctx.Err())
			}
		}
		for _, i := range r.Renewed {
			if i < 0 || i >= sizes[n] {
				return nil, refused, fmt.Errorf("lockdog: the agent renewed lease %d of %d", i, sizes[n])
			}
			renewed = append(renewed, first+i)
		}
		first += sizes[n]
		if r.Error != "" {
			refused = fmt.Errorf("lockdog: the agent: %.512s", r.Error)
		}
		err = errors.Join(err, r.err)
	}
	return renewed, refused, err
}

// send sends one request. The reply comes through the channel.
func (l *Link) send(ctx context.Context, node string, leases []Lease) (reply <-chan result, err error) {
	err = l.use(ctx, true, func(c *conn) error {
		reply, err = c.send(ctx, node, leases)
		return err
	})
	return reply, err
}

// use calls f with an open connection, while nobody else connects or sends. If it is to be fresh, it is a new one after
// a rest has begun.
func (l *Link) use(ctx context.Context, fresh bool, f func(*conn) error) error {
	select {
	case <-l.turn:
	case <-ctx.Done():
		return fmt.Errorf("lockdog: the agent doesn't read: %w", ctx.Err())
	}
	defer func() { l.turn <- struct{}{} }()
	if fresh && l.conn != nil && l.stale.Swap(false) { // another agent may be there now
		l.conn.close(errStale)
	}
	if l.conn == nil || l.conn.isClosed() {
		c, err := unixsocket.Dial(ctx, l.Path)
		if err == nil {
			l.conn, err = start(ctx, c, l.Secret, l.holds.disconnected)
		}
		if err != nil {
			return fmt.Errorf("lockdog: connecting to the agent: %w", err)
		}
		l.holds.connected(l.conn)
	}
	return f(l.conn)
}

// Rest makes the next calls of Renew fail at once for a while. After that they use a new connection.
func (l *Link) Rest(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale.Store(true)
	now := time.Now()
	if now.Before(l.restUntil) { // another request has failed at the same time
		return
	}
	first := l.rest == 0
	l.rest = min(max(2*l.rest, leastRest), mostRest)
	l.restUntil = now.Add(l.rest*3/4 + rand.N(l.rest/2))
	if first {
		l.Changed(reason)
	}
}

// succeeded notes a success of a request that began at a time. An agent that works now and then is left alone for
// longer and longer: only a success a minute after the last rest ends that.
func (l *Link) succeeded(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rest != 0 && began.Sub(l.restUntil) >= mostRest {
		l.rest = 0
		l.Changed(nil)
	}
}

// restsFor returns how long the rest still lasts; zero or negative: there is none.
func (l *Link) restsFor(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restUntil.Sub(now)
}

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
	"net"
	"sync"
	"sync/atomic"
	"time"
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

// Link asks the agent to renew leases. It connects when it is first needed, and again after a failure. It is safe for
// concurrent use.
type Link struct {
	dial    func(ctx context.Context) (net.Conn, error)
	changed func(err error)

	turn chan struct{} // has an element while nobody connects or sends; whoever takes it may use conn
	conn *conn         // nil: none

	stale atomic.Bool // conn must not be used any more

	mu        sync.Mutex
	rest      time.Duration // the last one; 0: there was none for a while
	restUntil time.Time
}

// New returns a link without a connection. It calls changed with the error of the first request that fails, and with
// nil when requests have succeeded again for a minute. changed must not block.
func New(dial func(ctx context.Context) (net.Conn, error), changed func(err error)) *Link {
	l := &Link{dial: dial, changed: changed, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// Close closes the connection. There must be no call of Renew under way or later. A nil Link needs no Close.
func (l *Link) Close() {
	if l == nil {
		return
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
	if l.resting() {
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

// renewAll sends requests of up to MaxLeases leases, and waits for the replies. refused is what the agent says.
func (l *Link) renewAll(ctx context.Context, node string, leases []Lease) (renewed []int, refused, err error) {
	var replies []<-chan result
	for start := 0; start < len(leases) && err == nil; start += MaxLeases {
		var reply <-chan result
		if reply, err = l.send(ctx, node, leases[start:min(start+MaxLeases, len(leases))]); err == nil {
			replies = append(replies, reply)
		}
	}
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
		asked := min(len(leases)-n*MaxLeases, MaxLeases)
		for _, i := range r.Renewed {
			if i < 0 || i >= asked {
				return nil, refused, fmt.Errorf("lockdog: the agent renewed lease %d of %d", i, asked)
			}
			renewed = append(renewed, n*MaxLeases+i)
		}
		if r.Error != "" {
			refused = fmt.Errorf("lockdog: the agent: %.512s", r.Error)
		}
		err = errors.Join(err, r.err)
	}
	return renewed, refused, err
}

// send sends one request. The reply comes through the channel.
func (l *Link) send(ctx context.Context, node string, leases []Lease) (<-chan result, error) {
	select {
	case <-l.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("lockdog: the agent doesn't read: %w", ctx.Err())
	}
	defer func() { l.turn <- struct{}{} }()
	if l.conn != nil && l.stale.Swap(false) { // another agent may be there now
		l.conn.close(errStale)
	}
	if l.conn == nil || l.conn.isClosed() {
		c, err := l.dial(ctx)
		if err == nil {
			l.conn, err = start(ctx, c)
		}
		if err != nil {
			return nil, fmt.Errorf("lockdog: connecting to the agent: %w", err)
		}
	}
	return l.conn.send(ctx, node, leases)
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
		l.changed(reason)
	}
}

// succeeded notes a success of a request that began at a time. An agent that works now and then is left alone for
// longer and longer: only a success a minute after the last rest ends that.
func (l *Link) succeeded(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rest != 0 && began.Sub(l.restUntil) >= mostRest {
		l.rest = 0
		l.changed(nil)
	}
}

func (l *Link) resting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.restUntil)
}

package lock

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Close ends the client. It refuses new locks, waiters fail with ErrClosed, and every live Lease.Context ends with a
// cause that matches ErrClosed. Waiters for a Quorum go on while a majority of its clients is open. A lease of a Quorum
// goes on while clients that are open hold it at a majority of the nodes. Then Close waits for holders to stop and
// release, until ctx ends, and keeps renewing their leases. Locks that aren't released when ctx ends expire in Redis.
// The error of Close counts them, but not those whose Release returned an error.
//
// Before Close returns, it removes what failed calls may have left in Redis. After a lost connection that takes up to
// the ReadTimeout of the Redis client, because a delayed request may still arrive. If ctx has ended, each removal is
// tried once, soon after Close. After a removal has failed, the others at its server are dropped. No goroutine of the
// client outlives Close by more than twice the ReadTimeout, unless code of the program doesn't return: the logger, a
// span processor, or a hook of the Redis client.
//
// Later calls wait for the first one and return its error. Close(nil) closes nothing and fails with ErrInvalid.
func (c *Client) Close(ctx context.Context) error {
	if !c.initialized() {
		return fmt.Errorf("%w: Close: the Client is nil, or not made by New", ErrInvalid)
	}
	if ctx == nil {
		return fmt.Errorf("%w: Close(nil): a ctx is needed", ErrInvalid)
	}
	if c.closes.CompareAndSwap(false, true) { // no sync.Once: synctest doesn't see that a goroutine waits for one
		left := c.gate.shut()
		close(c.closing)
		c.waits.wakeTracked()
		c.reportEach((*grant).cancelForClose)
		c.shutdown(ctx, left)
		close(c.closed)
	}
	<-c.closed
	return c.closeErr
}

// reportEach calls f for every current grant, and then what f returned, which calls the program's code. If one of these
// calls takes long, reportEach returns, and the calls go on in a goroutine that c.reports counts.
func (c *Client) reportEach(f func(*grant) (report func())) {
	var all []func()
	c.grants.each(func(g *grant) {
		if report := f(g); report != nil {
			all = append(all, report)
		}
	})
	var reported atomic.Int64
	done := make(chan struct{})
	c.report(func() {
		defer close(done)
		c.reportAll(all, &reported)
	})
	slow := time.NewTicker(reportGrace)
	defer slow.Stop()
	for before := int64(-1); ; {
		select {
		case <-done:
			return
		case <-slow.C:
			if now := reported.Load(); now != before {
				before = now
				continue
			}
			return
		}
	}
}

// reportGrace is far longer than it takes to write a log or a span.
const reportGrace = 100 * time.Millisecond

// reportAll calls the functions, and counts the calls. It goes on if one ends the goroutine (runtime.Goexit).
func (c *Client) reportAll(all []func(), reported *atomic.Int64) {
	i := 0
	defer func() {
		if i < len(all) {
			c.reportAll(all[i:], reported)
		}
	}()
	for i < len(all) {
		i++
		c.survive(all[i-1])
		reported.Add(1)
	}
}

// shutdown waits for callers and holders until ctx ends, and stops all parts of the client.
func (c *Client) shutdown(ctx context.Context, left <-chan struct{}) {
	select {
	case <-left:
	case <-ctx.Done():
	}
	c.reportEach((*grant).cancelForClose) // grants whose reply came after the first round
	within(ctx, c.graph.Close)
	c.awaitReleases(ctx)
	c.waits.giveBackAll()
	c.grants.seal()
	within(ctx, c.renewer.Close)
	if n, names := c.unreleased(); n > 0 {
		c.closeErr = fmt.Errorf(
			"lockdog: client closed with %d locks not released (%s); Redis frees them when their lease ends: %w",
			n, names, context.Cause(ctx))
	}
	c.reportEach((*grant).endUnreleased)
	within(ctx, func() { <-c.reports.shut() }, c.pubsub.Close, c.trackers.Close, func() {
		c.dispatcher.Close() // its last calls may give the cleaner work
		c.cleaner.Close(ctx)
		c.backend.CloseStream()
	})
	if err := c.backend.Close(); err != nil && c.closeErr == nil {
		c.closeErr = fmt.Errorf("lockdog: closing the connections for renewals: %w", err)
	}
	c.rec.Close()
}

// awaitReleases waits until all grants have ended, and their ends were reported, or until ctx ends. After DefaultLease
// it logs, once, what it waits for.
func (c *Client) awaitReleases(ctx context.Context) {
	drained := c.grants.drained()
	warn := time.NewTimer(DefaultLease)
	defer warn.Stop()
	for {
		select {
		case <-drained:
			return
		case <-ctx.Done():
			return
		case <-warn.C:
			n, names := c.unreleased()
			c.report(func() {
				c.logger().Warn("lockdog: Close waits for locks that are not released", "locks", n, "names", names)
			})
		}
	}
}

// unreleased returns how many locks are held, and the names of the first three.
func (c *Client) unreleased() (n int, names string) {
	c.grants.each(func(g *grant) {
		if g.whyEnded() != nil { // lost, and still to be reported
			return
		}
		switch n++; {
		case n == 1:
			names = strconv.Quote(g.lock.name)
		case n <= 3:
			names += ", " + strconv.Quote(g.lock.name)
		case n == 4:
			names += ", ..."
		}
	})
	return n, names
}

// within calls the functions, which stop parts of the client, at the same time. It waits for them, but no longer than
// until ctx ends: their calls in flight may take as long as ReadTimeout.
func within(ctx context.Context, stop ...func()) {
	var parts sync.WaitGroup
	for _, f := range stop {
		parts.Go(f)
	}
	stopped := make(chan struct{})
	go func() {
		parts.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
	}
}

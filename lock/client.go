package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/cleanup"
	"github.com/lockdog/lockdog/lock/internal/contention"
	"github.com/lockdog/lockdog/lock/internal/deadlock"
	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/pubsub"
	"github.com/lockdog/lockdog/lock/internal/renewal"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/tracking"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// Where several mutexes are locked at a time, this is the order:
//
//	pubsub.Mux.mu → waitQueues.mu → cleanup.Cleaner.mu → the mu of a queue there
//	pubsub.Mux.mu → Quorum.mu
//	pubsub.Mux.mu → grant.mu → compositeLease.mu
//	pubsub.Mux.mu → registry.mu or watchdog.Engine.mu
//	pubsub.Mux.mu → deadlock.Finder.mu
//	the mu of renewal's topologyWatch → registry.mu
//	any of them → contention.Profile.mu
//
// pubsub.Mux.mu comes first, as listeners are called with it held: so whoever calls the Mux must hold none of the others.

// Client takes locks in one Redis, and keeps them alive. It is safe for concurrent use; a program wants one per Redis. An
// unused client opens no connection and starts no goroutine.
type Client struct {
	cfg       clientConfig
	ownerHead string // "<id>:<random>-"
	seq       atomic.Uint64
	counters  script.Counters

	rec        *telemetry.Recorder
	backend    *backend.Redis
	dispatcher *dispatch.Dispatcher
	ops        *operations
	renewer    *renewal.Renewer
	cleaner    *cleanup.Cleaner
	pubsub     *pubsub.Mux
	waits      *waitQueues
	grants     *registry
	receipts   *receipts
	trackers   *tracking.Trackers  // nil without WithLossNotifications
	profile    *contention.Profile // nil with WithContentionProfile(0)
	graph      *deadlock.Finder

	gate     *gate
	controls sync.Map // endpoints whose control channel is listened to
	closes   atomic.Bool
	closing  chan struct{}
	closed   chan struct{} // Close has done what it does once
	closeErr error
}

// New returns a client that takes locks through rdb: a *redis.Client (also one made by NewFailoverClient), *redis.ClusterClient or *redis.Ring.
// It does no I/O. An error that matches ErrInvalid says which option, or which setting of rdb, isn't allowed. Any other error is the
// MeterProvider's.
//
// The program keeps rdb and closes it after Client.Close.
func New(rdb redis.UniversalClient, opts ...Option) (*Client, error) {
	cfg := clientConfig{lock: lockConfig{lease: DefaultLease, wait: -1, links: true}, batch: watchdog.DefaultBatchSize, graphAfter: deadlock.DefaultAfter, profileRate: DefaultContentionRate}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("%w: an option is nil", ErrInvalid)
		}
		o.applyClient(&cfg)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	be, err := backend.NewRedis(rdb, cfg.renew)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c := &Client{cfg: cfg, backend: be, gate: newGate(), closing: make(chan struct{}), closed: make(chan struct{})}
	var random [script.OwnerRandomBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	c.ownerHead = cfg.id + ":" + hex.EncodeToString(random[:]) + "-"
	c.rec, err = telemetry.NewRecorder(telemetry.Config{
		TracerProvider: cfg.tracers, MeterProvider: cfg.meters, Logger: cfg.logger, State: c.state,
		CallerAttributes: cfg.callerAttributes,
	})
	if err != nil {
		_ = be.Close()
		return nil, fmt.Errorf("lockdog: the meter provider refuses an instrument: %w", err)
	}
	c.dispatcher = dispatch.New(dispatch.Config{Backend: be, Recorder: c.rec, Panicked: c.panicked})
	c.ops = &operations{dispatcher: c.dispatcher, backend: be, rec: c.rec}
	c.cleaner = cleanup.New()
	c.pubsub = pubsub.New(pubsub.Config{Backend: be, Recorder: c.rec, Refused: c.subscriptionRefused, Gone: c.watchElsewhere})
	c.waits = newWaitQueues(c)
	c.grants = newRegistry()
	c.receipts = newReceipts()
	c.profile = contention.New(cfg.profileRate)
	if cfg.lossNotices {
		c.trackers = newTrackers(c)
	}
	c.graph = deadlock.New(deadlock.Config{
		After: cfg.graphAfter, Owners: c.ownerHead, Prefix: cfg.prefix, Control: controlPrefix, Waits: graphWaits{c.waits},
		Dispatcher: c.dispatcher, Logger: c.logger, Panicked: c.panicked,
	})
	c.renewer, err = renewal.New(renewal.Config{
		Dispatcher: c.dispatcher, Backend: be, Recorder: c.rec, Leases: c.grants, BatchSize: cfg.batch, Panicked: c.panicked,
	})
	if err != nil {
		c.rec.Close()
		_ = be.Close()
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return c, nil
}

// initialized reports whether the client was returned by New.
func (c *Client) initialized() bool { return c != nil && c.ops != nil }

// check validates what New was given, and fills in the defaults.
func (c *clientConfig) check() error {
	c.lock.check()
	if c.lock.err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, c.lock.err)
	}
	if !utf8.ValidString(c.prefix) || len(c.prefix) > maxTextBytes {
		return fmt.Errorf("%w: WithKeyPrefix(%.64q): must be at most %d bytes of valid UTF-8", ErrInvalid, c.prefix, maxTextBytes)
	}
	if err := checkBraces("the key prefix", c.prefix); err != nil {
		return err
	}
	if err := checkReserved("the key prefix", c.prefix); err != nil {
		return err
	}
	if c.idSet && (c.id == "" || len(c.id) > maxTextBytes || !utf8.ValidString(c.id) || strings.ContainsFunc(c.id, notInClientID)) {
		return fmt.Errorf("%w: WithClientID(%.64q): must be 1 to %d bytes of printable UTF-8 without ':'", ErrInvalid, c.id, maxTextBytes)
	}
	if c.batch < 1 || c.batch > watchdog.MaxBatchSize {
		return fmt.Errorf("%w: WithRenewalBatch(%d): must be 1 to %d", ErrInvalid, c.batch, watchdog.MaxBatchSize)
	}
	if c.profileRate < 0 || c.profileRate > maxContentionRate {
		return fmt.Errorf("%w: WithContentionProfile(%d): must be 0 to %d", ErrInvalid, c.profileRate, maxContentionRate)
	}
	switch {
	case c.graphAfter != 0 && (c.graphAfter < deadlock.MinAfter || c.graphAfter > deadlock.MaxAfter):
		return fmt.Errorf("%w: WithWaitGraph(%v): must be %v to %v, or 0", ErrInvalid, c.graphAfter, deadlock.MinAfter, deadlock.MaxAfter)
	case c.graphAfter == 0 && c.lock.breaks:
		return fmt.Errorf("%w: WithDeadlockBreaking and WithWaitGraph(0) contradict each other: deadlocks aren't looked for", ErrInvalid)
	}
	if c.id == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.id = host + "/" + strconv.Itoa(os.Getpid())
	}
	return nil
}

// notInClientID reports whether a rune may not be in a client's id.
func notInClientID(r rune) bool { return r == ':' || !unicode.IsPrint(r) }

// Close ends the client. It refuses new locks, fails those who wait with ErrClosed and ends every Lease.Context with a cause that matches
// ErrClosed. Then it waits, and keeps renewing, while holders wind down and release, until ctx ends. Locks not released by then are left to
// expire, and the error counts them. It doesn't count those for which Release returned an error. What calls that failed may have left in Redis is
// removed before Close returns: after a lost connection that takes up to the ReadTimeout of the Redis client, in which a delayed request may still
// arrive. If ctx has ended it is removed soon afterwards, and once: no goroutine of the client outlives Close by more than twice the ReadTimeout.
// Later calls wait for the first and return what it did.
//
// Close(nil) closes nothing and fails with ErrInvalid.
func (c *Client) Close(ctx context.Context) error {
	if !c.initialized() {
		return fmt.Errorf("%w: Close: the Client is nil, or not made by New", ErrInvalid)
	}
	if ctx == nil {
		return fmt.Errorf("%w: Close(nil): a ctx is needed", ErrInvalid)
	}
	if c.closes.CompareAndSwap(false, true) { // no sync.Once, at which a synctest bubble would see nobody wait
		left := c.gate.shut()
		close(c.closing)
		c.waits.wakeTracked()
		c.grants.each(func(g *grant) { g.closing() })
		c.shutdown(ctx, left)
		close(c.closed)
	}
	<-c.closed
	return c.closeErr
}

// shutdown waits for holders and callers, then stops everything.
func (c *Client) shutdown(ctx context.Context, left <-chan struct{}) {
	select {
	case <-left:
	case <-ctx.Done():
	}
	c.grants.each(func(g *grant) { g.closing() }) // those whose grant was on its way
	within(ctx, c.graph.Close)
	c.awaitReleases(ctx)
	c.waits.declineAll()
	c.grants.seal()
	within(ctx, c.renewer.Close)
	if n, names := c.unreleased(); n > 0 {
		c.closeErr = fmt.Errorf("lockdog: client closed with %d locks not released (%s); Redis frees them when their lease ends: %w", n, names, context.Cause(ctx))
	}
	c.grants.each((*grant).abandon)
	within(ctx, c.pubsub.Close, c.trackers.Close, func() {
		c.dispatcher.Close() // afterwards it is known what its calls have left
		c.cleaner.Close(ctx)
	})
	if err := c.backend.Close(); err != nil && c.closeErr == nil {
		c.closeErr = fmt.Errorf("lockdog: closing the connections for renewals: %w", err)
	}
	c.rec.Close()
}

// awaitReleases waits until all locks are released, or ctx ends. After a while it says for which.
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
			c.logger().Warn("lockdog: Close waits for locks that are not released", "locks", n, "names", names)
		}
	}
}

// unreleased is how many locks are held, and what some of them are called.
func (c *Client) unreleased() (n int, names string) {
	c.grants.each(func(g *grant) {
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

// within stops parts of the client and waits for them until ctx ends: their calls in flight may last until ReadTimeout.
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

func (c *Client) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// newOwner names a grant: no other ever had, or will have, the same.
func (c *Client) newOwner() string {
	var buf [128]byte // else the number alone would be one string more
	return string(strconv.AppendUint(append(buf[:0], c.ownerHead...), c.seq.Add(1), 10))
}

// state is asked when metrics are collected.
func (c *Client) state() telemetry.State {
	age, ticking := c.renewer.TickAge()
	wanted, connected := c.pubsub.State()
	return telemetry.State{Ticking: ticking, TickAge: age, PubSubWanted: wanted, PubSubConnected: connected}
}

// logger is for what isn't the recorder's to say.
func (c *Client) logger() *slog.Logger {
	if c.cfg.logger != nil {
		return c.cfg.logger
	}
	return slog.Default()
}

// subscriptionRefused reports that a server refuses the subscription for wake-ups or, if err is nil, that it accepts it again.
func (c *Client) subscriptionRefused(node string, err error) {
	logger := c.logger()
	if node != "" {
		logger = logger.With("node", node)
	}
	if err == nil {
		logger.Info("lockdog: Redis takes the subscription for wake-ups again")
		return
	}
	logger.Warn("lockdog: Redis refuses the subscription for wake-ups; waiters poll", "error", err.Error())
}

// panicked reports a bug, mostly in a hook of the program's client or in its telemetry: something that the watchdog, or a batch, called
// panicked, and they went on.
func (c *Client) panicked(v any, stack []byte) {
	c.logger().Error("lockdog: survived a panic", "panic", fmt.Sprint(v), "stack", string(stack), "time", time.Now())
}

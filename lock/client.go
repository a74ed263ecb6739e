package lock

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/agentlink"
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

// A goroutine that needs several of these mutexes locks them in this order:
//
//	pubsub.Mux.mu → waitQueues.mu → cleanup.Cleaner.mu → cleanup.queue.mu
//	pubsub.Mux.mu → waitQueues.mu → dispatch.Dispatcher.mu
//	pubsub.Mux.mu → Quorum.mu
//	pubsub.Mux.mu → grant.mu → compositeLease.mu → watchdog.Engine.mu
//	pubsub.Mux.mu → registry.mu or watchdog.Engine.mu
//	pubsub.Mux.mu → deadlock.Finder.mu
//	renewal.topologyWatch.mu → registry.mu
//	any of them → contention.Profile.mu
//
// pubsub.Mux.mu is the first, because the Mux calls its listeners with it held. So hold none of the others while you
// call the Mux.

// Client takes locks in one Redis, and keeps them alive. It is safe for concurrent use: a program needs one per Redis.
// An unused client opens no connection and starts no goroutine.
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
	agent      *agentlink.Link // nil: there is none
	cleaner    *cleanup.Cleaner
	pubsub     *pubsub.Mux
	waits      *waitQueues
	grants     *registry
	receipts   *receipts
	trackers   *tracking.Trackers  // nil without WithLossNotifications
	profile    *contention.Profile // nil with WithContentionProfile(0)
	graph      *deadlock.Finder

	gate     *gate
	controls sync.Map // its keys are the endpoints where the client listens to its control channel
	closes   atomic.Bool
	reports  *gate // the reports under way: see report
	closing  chan struct{}
	closed   chan struct{} // closed when the first Close is done
	closeErr error
}

// New returns a client that takes locks through rdb: a *redis.Client (also of NewFailoverClient), a
// *redis.ClusterClient or a *redis.Ring. It does no I/O. An error that matches ErrInvalid says which option isn't
// allowed, or what is wrong with rdb or its settings. Any other error comes from the MeterProvider.
//
// The program still owns rdb, and closes it after Client.Close.
func New(rdb redis.UniversalClient, opts ...Option) (*Client, error) {
	cfg := clientConfig{
		lock: lockConfig{lease: DefaultLease, wait: -1, links: true}, batch: watchdog.DefaultBatchSize,
		graphAfter: deadlock.DefaultAfter, profileRate: DefaultContentionRate,
	}
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
	if cfg.hasAgent && be.Topology() != "" {
		return nil, fmt.Errorf("%w: WithAgent: not for this Redis client: %w", ErrInvalid, agentlink.ErrLayout)
	}
	c := &Client{cfg: cfg, backend: be, gate: newGate(), closing: make(chan struct{}), closed: make(chan struct{})}
	secret := script.NewSecret()
	c.ownerHead = cfg.id + ":" + script.DigitsOf(secret) + "-"
	c.rec, err = telemetry.NewRecorder(telemetry.Config{
		TracerProvider: cfg.tracers, MeterProvider: cfg.meters, Logger: cfg.logger, State: c.state,
	})
	if err != nil {
		_ = be.Close()
		return nil, fmt.Errorf("lockdog: the meter provider refuses an instrument: %w", err)
	}
	c.dispatcher = dispatch.New(dispatch.Config{Backend: be, Recorder: c.rec, Panicked: c.panicked})
	c.ops = &operations{dispatcher: c.dispatcher, backend: be, rec: c.rec}
	c.cleaner = cleanup.New()
	c.pubsub = pubsub.New(pubsub.Config{
		Backend: be, Recorder: c.rec, Refused: c.subscriptionRefused, Gone: c.watchElsewhere,
	})
	c.waits = newWaitQueues(c)
	c.grants = newRegistry()
	c.receipts = newReceipts()
	c.reports = newGate()
	c.profile = contention.New(cfg.profileRate)
	if cfg.lossNotices {
		c.trackers = newTrackers(c)
	}
	c.graph = deadlock.New(deadlock.Config{
		After: cfg.graphAfter, Owners: c.ownerHead, Prefix: cfg.prefix, Control: controlPrefix,
		Waits: graphWaits{c.waits}, Dispatcher: c.dispatcher, Logger: c.logger, Panicked: c.panicked,
	})
	c.agent = c.newAgentLink(secret)
	c.renewer = renewal.New(renewal.Config{
		Caller: renewal.Caller{Dispatcher: c.dispatcher, Backend: be, Recorder: c.rec},
		Agent:  c.agent, Leases: c.grants, BatchSize: cfg.batch, Panicked: c.panicked,
	})
	return c, nil
}

func (c *Client) initialized() bool { return c != nil && c.ops != nil }

// check validates the options of New, and fills in the default client id.
func (c *clientConfig) check() error {
	c.lock.check()
	if c.lock.err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, c.lock.err)
	}
	if !utf8.ValidString(c.prefix) || len(c.prefix) > maxTextBytes {
		return fmt.Errorf("%w: WithKeyPrefix(%.64q): must be at most %d bytes of valid UTF-8",
			ErrInvalid, c.prefix, maxTextBytes)
	}
	if err := checkBraces("the key prefix", c.prefix); err != nil {
		return err
	}
	if err := checkReserved("the key prefix", c.prefix); err != nil {
		return err
	}
	if c.idSet && (c.id == "" || len(c.id) > maxTextBytes || !utf8.ValidString(c.id) ||
		strings.ContainsFunc(c.id, notInClientID)) {
		return fmt.Errorf("%w: WithClientID(%.64q): must be 1 to %d bytes of printable UTF-8 without ':'",
			ErrInvalid, c.id, maxTextBytes)
	}
	if c.hasAgent && (c.agent == "" || len(c.agent) > agentlink.MaxPath) {
		return fmt.Errorf("%w: WithAgent(%.128q): must be the path of a Unix socket, 1 to %d bytes",
			ErrInvalid, c.agent, agentlink.MaxPath)
	}
	if c.batch < 1 || c.batch > watchdog.MaxBatchSize {
		return fmt.Errorf("%w: WithRenewalBatch(%d): must be 1 to %d", ErrInvalid, c.batch, watchdog.MaxBatchSize)
	}
	if c.profileRate < 0 || c.profileRate > maxContentionRate {
		return fmt.Errorf("%w: WithContentionProfile(%d): must be 0 to %d",
			ErrInvalid, c.profileRate, maxContentionRate)
	}
	switch {
	case c.graphAfter != 0 && (c.graphAfter < deadlock.MinAfter || c.graphAfter > deadlock.MaxAfter):
		return fmt.Errorf("%w: WithWaitGraph(%v): must be %v to %v, or 0",
			ErrInvalid, c.graphAfter, deadlock.MinAfter, deadlock.MaxAfter)
	case c.graphAfter == 0 && c.lock.breaks:
		return fmt.Errorf(
			"%w: WithDeadlockBreaking and WithWaitGraph(0) contradict each other: deadlocks aren't looked for",
			ErrInvalid)
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

// notInClientID reports whether r is forbidden in a client's id.
func notInClientID(r rune) bool { return r == ':' || !unicode.IsPrint(r) }

func (c *Client) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// newOwner returns an owner that no other grant has had or will have.
func (c *Client) newOwner() string {
	var buf [128]byte // on the stack: only the result is allocated
	return string(strconv.AppendUint(append(buf[:0], c.ownerHead...), c.seq.Add(1), 10))
}

// state returns what metrics show of the client. It is called when they are collected.
func (c *Client) state() telemetry.State {
	age, ticking := c.renewer.TickAge()
	wanted, connected := c.pubsub.State()
	return telemetry.State{Ticking: ticking, TickAge: age, PubSubWanted: wanted, PubSubConnected: connected}
}

// logger returns where to log what c.rec doesn't log.
func (c *Client) logger() *slog.Logger {
	if c.cfg.logger != nil {
		return c.cfg.logger
	}
	return slog.Default()
}

// subscriptionRefused logs that a server refuses subscriptions, or keeps hanging up. If err is nil, it logs that the
// server accepts them again. Messages are received even while the logger blocks.
func (c *Client) subscriptionRefused(node string, err error) {
	c.report(func() {
		logger := c.logger()
		if node != "" {
			logger = logger.With("node", node)
		}
		if err == nil {
			logger.Info("lockdog: Redis takes the subscription for wake-ups again")
			return
		}
		logger.Warn("lockdog: Redis refuses the subscription for wake-ups; waiters poll", "error", err.Error())
	})
}

// newAgentLink returns the link to the agent of this machine, nil without WithAgent. secret is that of the owners.
func (c *Client) newAgentLink(secret string) *agentlink.Link {
	if !c.cfg.hasAgent {
		return nil
	}
	return agentlink.New(agentlink.Config{
		Path: c.cfg.agent, Secret: secret,
		Changed: func(err error) {
			c.report(func() {
				logger := c.logger().With("agent", c.cfg.agent)
				if err == nil {
					logger.Info("lockdog: the agent works again")
					return
				}
				logger.Warn("lockdog: the agent doesn't renew; this client renews by itself", "error", err.Error())
			})
		},
		Told: func(err error) {
			renewed := 1
			if err != nil {
				renewed = 0
			}
			c.survive(func() { c.rec.AgentRequest(context.Background(), renewed, 1) })
		},
	})
}

// report calls f, which calls the program's code, in a new goroutine. Close waits for that goroutine.
func (c *Client) report(f func()) {
	counted := c.reports.enter()
	go func() {
		if counted {
			defer c.reports.leave()
		}
		c.survive(f)
	}()
}

// panicked logs a panic from which the client has recovered: a bug, mostly in a hook of the program's Redis client or
// in its telemetry.
func (c *Client) panicked(v any, stack []byte) {
	defer func() { _ = recover() }() // the logger may be what panics
	c.logger().Error("lockdog: survived a panic", "panic", fmt.Sprint(v), "stack", string(stack), "time", time.Now())
}

// survive calls f, which calls the program's code, and logs a panic in it.
func (c *Client) survive(f func()) {
	defer func() {
		if v := recover(); v != nil {
			c.panicked(v, debug.Stack())
		}
	}()
	f()
}

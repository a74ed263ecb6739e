package lock

import (
	"context"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/telemetry"
)

// Defaults and limits of options.
const (
	DefaultLease = 30 * time.Second       // unless WithLease or WithFixedLease sets another
	MinLease     = 100 * time.Millisecond // shorter ones could not be renewed over a network
	MaxLease     = 365 * 24 * time.Hour

	renewalsPerLease = 3 // a lease that isn't fixed is renewed every third of it
	maxMinHold       = 24 * time.Hour
	maxTakeoverDelay = 24 * time.Hour
	maxTextBytes     = 256

	maxContentionRate = 1_000_000
)

// Option configures a Client.
type Option interface{ applyClient(*clientConfig) }

// LockOption configures one lock. Given to New, it is the default of the client's locks.
type LockOption interface {
	Option
	applyLock(*lockConfig)
}

type clientConfig struct {
	lock    lockConfig
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	logger  *slog.Logger
	prefix  string
	id      string
	idSet   bool
	batch   int
	renew   redis.UniversalClient

	agent       string // the path of its socket
	hasAgent    bool
	lossNotices bool
	graphAfter  time.Duration // 0: no wait graph
	profileRate int
}

type lockConfig struct {
	lease          time.Duration
	ttlArg         any // ttl() in ms
	fixed          bool
	wait           time.Duration // negative: as long as ctx allows
	leaseCtx       context.Context
	reentrant      bool
	group          string
	maxHold        time.Duration
	heartbeat      time.Duration
	holdWarning    time.Duration
	minHold        time.Duration
	takeoverDelay  time.Duration
	spans          telemetry.RenewalSpans
	links          bool
	replicas       int
	replicaWait    time.Duration
	redissonTokens bool
	breaks         bool

	// Which options were given at this level: to New, or to one lock. WithLease and WithFixedLease contradict each
	// other only if both were given at the same level.
	leaseSet, fixedSet, maxHoldSet, heartbeatSet, minHoldSet, takeoverDelaySet bool
	// err is about the first invalid option. It isn't wrapped in ErrInvalid yet.
	err error
}

type clientOption func(*clientConfig)

func (o clientOption) applyClient(c *clientConfig) { o(c) }

type lockOption func(*lockConfig)

func (o lockOption) applyClient(c *clientConfig) { o(&c.lock) }
func (o lockOption) applyLock(c *lockConfig)     { o(c) }

// WithLease sets a lease that is renewed every third of ttl, until the lock is released or lost, the lease is canceled,
// the holder dies, or Client.Close gives up. A holder that dies blocks others for ttl at most, with WithTakeoverDelay
// for longer. The default is DefaultLease.
func WithLease(ttl time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.lease, c.fixed, c.leaseSet = ttl, false, true })
}

// WithFixedLease sets a lease that is never renewed. After ttl the lock is free, released or not, unless
// WithTakeoverDelay keeps it taken for longer.
func WithFixedLease(ttl time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.lease, c.fixed, c.fixedSet = ttl, true, true })
}

// WithWait bounds the time that Lock waits. Then Lock fails with a *HeldError or, if its last question to Redis failed
// or isn't answered one second later, with an error that matches ErrUnavailable. Unlike a deadline of ctx, WithWait
// doesn't bound the lease. With 0, Lock doesn't wait. The default is to wait until ctx ends.
func WithWait(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) {
		if d < 0 {
			c.fail("WithWait(%v): must not be negative", d)
		}
		c.wait = min(d, backend.Longest)
	})
}

// WithLifetime makes the lease, and Lease.Context, follow ctx instead of Lock's ctx, which then bounds only the wait.
// Re-entry is detected through both. Lock also stops waiting when ctx ends, because the lease would be canceled at
// once.
func WithLifetime(ctx context.Context) LockOption {
	return lockOption(func(c *lockConfig) {
		if ctx == nil {
			c.fail("WithLifetime(nil): a ctx is needed")
		}
		c.leaseCtx = ctx
	})
}

// WithReentrancy lets Lock and TryLock join a live lease of the same lock and client if their ctx descends from the
// Context of that lease. Without the option they fail with ErrDeadlock. The last Release frees the lock. The Context of
// a lease that joined ends with the outer one's at the latest, unless it follows another ctx (WithLifetime). So release
// the inner lease first. Goroutines that share such a ctx do not exclude each other.
func WithReentrancy() LockOption {
	return lockOption(func(c *lockConfig) { c.reentrant = true })
}

// WithGroup sets the label that stands for the lock's name in metrics and span names. Keep the number of groups small:
// those past 50 of a client, or 150 of a MeterProvider, are counted together. The default is the name up to its first
// ':', or "default" if it has none. Defaults make new groups only while a client has fewer than 20.
func WithGroup(group string) LockOption {
	return lockOption(func(c *lockConfig) {
		if group == "" || len(group) > maxTextBytes || !utf8.ValidString(group) {
			c.fail("WithGroup(%.64q): must be 1 to %d bytes of valid UTF-8", group, maxTextBytes)
		}
		c.group = group
	})
}

// WithMaxHold ends Lease.Context and stops renewing d after the grant, so that a stuck holder blocks others for d and
// one lease at most, with WithTakeoverDelay for longer. d must be at least a third of the lease.
func WithMaxHold(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.maxHold, c.maxHoldSet = min(d, backend.Longest), true })
}

// WithHeartbeat ends Lease.Context and stops renewing when the holder hasn't called Lease.Heartbeat for d: the
// process may live while its work is stuck. d must be at least a third of the lease.
func WithHeartbeat(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.heartbeat, c.heartbeatSet = min(d, backend.Longest), true })
}

// WithHoldWarning logs a warning, once per lease, when the lock has been held for d. At most ten a second are logged by
// name; the others are counted.
func WithHoldWarning(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) {
		if d <= 0 {
			c.fail("WithHoldWarning(%v): must be positive", d)
		}
		c.holdWarning = min(d, backend.Longest)
	})
}

// WithMinHold keeps the lock taken for d after the grant: an earlier release leaves the key in Redis until then, but
// the lease counts as released. Use it where several processes start the same work at about the same time, and one
// alone is to do it: make d longer than the difference between their clocks and schedules, and take the lock with
// TryLock or TryDo. A holder that dies blocks others for one lease, as without the option. The option is for a Mutex, a
// FairMutex, a Multi and the mutex of a Quorum. d is 1ms to 24 hours, and not longer than WithMaxHold or
// WithFixedLease.
func WithMinHold(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) {
		if d < time.Millisecond || d > maxMinHold {
			c.fail("WithMinHold(%v): must be 1ms to %v", d, maxMinHold)
		}
		c.minHold, c.minHoldSet = d, true
	})
}

// WithTakeoverDelay keeps the lock taken for d after its lease ran out without a release. A holder that was stopped or
// starved notices late that its Context has ended, and what it started may need time to end: d is that time. The lock's
// key in Redis outlives the lease by d, and the Remaining of a Holder and of a *HeldError includes it. Deadline and
// Context go by the lease alone. A release ends the delay: at once or, if the lease was lost before, a moment after
// Release has returned. ForceUnlock doesn't wait either.
//
// The holder's option counts, not that of the waiters. It is for each kind of lock with leases. When another client
// releases the lock, a waiter with this option isn't granted it by a message. The waiter is woken and asks, which takes
// one more round trip. d is 24 hours at most; 0, the default, is no delay.
func WithTakeoverDelay(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) {
		if d < 0 || d > maxTakeoverDelay {
			c.fail("WithTakeoverDelay(%v): must be 0 to %v", d, maxTakeoverDelay)
		}
		c.takeoverDelay, c.takeoverDelaySet = d.Truncate(time.Millisecond), true
	})
}

// RenewalSpans says which renewals of a sampled lock get a span. Metrics and logs don't depend on it.
type RenewalSpans = telemetry.RenewalSpans

// The policies of WithRenewalSpans.
const (
	RenewalSpansAll      = telemetry.RenewalSpansAll      // each renewal
	RenewalSpansThinned  = telemetry.RenewalSpansThinned  // first 8, 16th, 32nd, ...; and all late, slow or failed ones
	RenewalSpansFailures = telemetry.RenewalSpansFailures // only those that failed
	RenewalSpansOff      = telemetry.RenewalSpansOff      // none
)

// WithRenewalSpans sets which renewals of a sampled lock get a span. The default is RenewalSpansAll.
func WithRenewalSpans(policy RenewalSpans) LockOption {
	return lockOption(func(c *lockConfig) {
		if policy > RenewalSpansOff {
			c.fail("WithRenewalSpans(%d): unknown policy; see the constants of RenewalSpans", policy)
		}
		c.spans = policy
	})
}

// WithoutHolderLinks keeps the holder's trace context out of Redis. By default the lock's entry contains it, so that
// the spans of waiters, in any process, link to the span of the holder.
func WithoutHolderLinks() LockOption {
	return lockOption(func(c *lockConfig) { c.links = false })
}

// WithReplicas makes a grant wait, with Redis's WAIT, until n replicas of the lock's server have it, for d at most. If
// they don't, the grant is undone, and Lock and TryLock fail with a *ReplicasError; a Lock that already waits tries
// again for about one lease. Failovers then lose fewer held locks, but not none: Redis may promote another replica, and
// renewals don't wait. d must be shorter than the ReadTimeout of the Redis client and than the lease.
func WithReplicas(n int, d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) {
		if n < 1 || d < time.Millisecond {
			c.fail("WithReplicas(%d, %v): at least 1 replica and 1ms are needed", n, d)
		}
		c.replicas, c.replicaWait = n, d
	})
}

// WithRedissonTokens draws the lock's tokens from the counter of Redisson's RFencedLock, redisson_lock_token:{name}, so
// that the tokens of Go and Java holders form one rising sequence. A grant by lockdog raises the counter to Redis's
// time in microseconds, or by one if it isn't below that. A grant by Redisson raises it by one.
//
// The price: one counter for each name, which never expires. And if the counter is lost (FLUSHALL, a failover that lost
// writes), Redisson's tokens are smaller than before until the next grant by lockdog. Use it only with an RFencedLock.
func WithRedissonTokens() LockOption {
	return lockOption(func(c *lockConfig) { c.redissonTokens = true })
}

// WithDeadlockBreaking lets Lock fail with a *DeadlockError, which matches ErrDeadlock, if its wait is part of a
// deadlock, in one process or across several (see WithWaitGraph). In a deadlock, one of the waits with this option
// fails: the one whose lease in the cycle has the largest token, as a rule the lease that was granted last. Its caller
// must release what it holds, and may then try again.
func WithDeadlockBreaking() LockOption {
	return lockOption(func(c *lockConfig) { c.breaks = true })
}

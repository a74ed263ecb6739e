package lock

import (
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// WithTracerProvider sets where spans go. The default is the global provider.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return clientOption(func(c *clientConfig) { c.tracers = tp })
}

// WithMeterProvider sets where metrics go. The default is the global provider.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return clientOption(func(c *clientConfig) { c.meters = mp })
}

// WithLogger sets where logs go. The default, and nil, is slog.Default.
func WithLogger(l *slog.Logger) Option {
	return clientOption(func(c *clientConfig) { c.logger = l })
}

// WithKeyPrefix sets a prefix of every name, and of lockdog's own keys and channels. Use it to share a Redis between
// programs, or to follow Redisson's NameMapper.
func WithKeyPrefix(prefix string) Option {
	return clientOption(func(c *clientConfig) { c.prefix = prefix })
}

// WithClientID names the client in Redis, logs and spans. The default is "<host>/<pid>". It needn't be unique: an owner
// also contains 64 random bits. Allowed are 1 to 256 bytes of printable UTF-8 without ':', which ends the id in an
// owner.
func WithClientID(id string) Option {
	return clientOption(func(c *clientConfig) { c.id, c.idSet = id, true })
}

// WithRenewalBatch bounds the leases that one call to Redis renews: 1 to 4096, by default 256. Larger batches are fewer
// calls, each of which blocks Redis for longer: about 3 µs per lease (go run -C loadtest ., its figure "in scripts").
func WithRenewalBatch(n int) Option {
	return clientOption(func(c *clientConfig) { c.batch = n })
}

// WithRenewalClient sends renewals through rdb. By default they have a small pool of connections to each server, with
// most options of the client given to New. rdb should have ContextTimeoutEnabled and a pool that nothing else uses up,
// and must reach the same servers. A call, including its hooks, has a sixth of the lease at most, and 5 s at most. The
// program closes rdb after Client.Close. nil is the default.
func WithRenewalClient(rdb redis.UniversalClient) Option {
	return clientOption(func(c *clientConfig) { c.renew = rdb })
}

// WithAgent lets the agent of this machine ("lockdog agent", package lock/agent) renew the client's leases together with
// those of other processes. N locks of P processes then cost N/256 calls to Redis per renewal interval, or 40 if that
// is more, instead of at least P. path is that of the agent's Unix socket. Not for a Ring, and not with
// ClusterOptions.ClusterSlots. The agent must have the same address of Redis as this client, and the same database.
//
// Deadlines count from before the agent was asked, by this process's clock. What the agent
// hasn't renewed within half of the time of an attempt (a 12th of the lease, 2.5 s at most), the client renews by
// itself, at once. After a failure it leaves the agent alone for about 5 s, and for longer after more failures, up to a
// minute or so. That is logged, and lockdog.agent.requests counts it. In any case the client renews by itself once in
// two minutes, so that it has an open connection, and always if the lease is shorter than about 3 s.
//
// If this process dies, the agent releases its locks at once, in milliseconds, not after a lease: those that are
// renewed, except WithMinHold and WithTakeoverDelay, once they have been held for 5 ms, and 65,536 at most. What it has
// sent elsewhere, and its children, may still work then, beside the next holder: see Lease.Token and WithTakeoverDelay.
// A process that hangs or is stopped keeps its locks, as without an agent. The program itself must open the socket:
// what relays it would be taken for the program.
//
// The agent is trusted: that what it reports as renewed is renewed, and that it releases nothing else. So only users
// whom you trust with that may have the right to write to the socket's directory.
func WithAgent(path string) Option {
	return clientOption(func(c *clientConfig) {
		c.agent, c.hasAgent = path, true
	})
}

// WithLossNotifications makes Redis notify the client, by client-side caching (CLIENT TRACKING), when the key of a lock
// that it holds has changed. A lease whose entry is gone (DEL, FLUSHALL, RENAME or whatever else) is then lost some
// milliseconds later, not only at the next renewal. A lease that was cut short by PEXPIRE is renewed at once, unless it
// is a Semaphore's. The option is for all kinds, but only for leases that are renewed: one of WithFixedLease isn't
// checked. For a Quorum, give it to the clients of all nodes.
//
// It costs two connections and two goroutines for each server that has locks of the client, until half a minute after
// the last one. And it costs two commands and a message for each grant that is kept for more than 5 ms, and for each
// renewal: about 3 µs of Redis's CPU and 5 µs of the client's (BenchmarkRenewals). Permits of one semaphore share a
// key, as do readers of one lock, so the client also gets messages of changes that others make. It then checks 50 times
// a second at most.
//
// A change that happens while a connection is broken is noticed when there is another connection: at once, or after 3
// to 6 s if the break was silent. Leases are checked by renewals, which keep their pace: if thousands of locks are lost
// together, some 250 are noticed in each 100 ms. SWAPDB isn't noticed. If Redis refuses (an ACL, or a proxy that
// doesn't know the commands), that is logged once, counted in lockdog.errors as an error of subscribe, and tried again
// about once a minute. Meanwhile leases live as without the option.
func WithLossNotifications() Option {
	return clientOption(func(c *clientConfig) { c.lossNotices = true })
}

// WithWaitGraph sets how long a wait lasts before the client writes it into the wait graph and looks for deadlocks. The
// graph shows who waits for whom in all processes. The default is 1s; 100ms to 1h are allowed; 0 turns both off.
//
// Such a wait is in Redis with an expiry of 5 s: the lock that it waits for, since when, the trace, and the leases that
// its ctx carries. A deadlock is a cycle of waits: each waits for a lease that the ctx of the next one carries. It is
// reported if all of it was true at one moment, as a rule 1 to 2 seconds after the last of its waits was written. Each
// client reports it for its own waits: in the log, in lockdog.deadlocks and as an event of the acquire's span. The
// deadlock lasts until a wait in it ends (by WithWait, its ctx or WithDeadlockBreaking), or a lease is lost.
//
// Waits for a Mutex, a FairMutex, a Multi and both sides of an RWMutex are followed; a reader's wait only to a writer
// that holds the lock. Waits for semaphores, latches and Quorums are not. Of the leases that a wait's ctx carries, only
// those of the same Client count. Leases of Redisson don't. The search assumes that no lease is released during a wait
// whose ctx carries it. So don't give Lease.Context to a goroutine that the holder doesn't wait for.
//
// A shorter wait costs nothing. A longer one costs up to 20 commands when it is written, and two a second from then on.
// A search that may find a new deadlock may exceed that, once a second for each client. If Redis's ACL doesn't allow
// the keys, that is logged once, and locks work as without the graph.
func WithWaitGraph(after time.Duration) Option {
	return clientOption(func(c *clientConfig) { c.graphAfter = after })
}

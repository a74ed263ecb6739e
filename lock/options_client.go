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

// WithKeyPrefix sets the text that is put before every name, and before lockdog's own keys and channels, to share a Redis between
// programs, or to follow Redisson's NameMapper.
func WithKeyPrefix(prefix string) Option {
	return clientOption(func(c *clientConfig) { c.prefix = prefix })
}

// WithClientID names the client in Redis, logs and spans. The default is "<host>/<pid>". It needn't be unique: an owner also holds 64 random
// bits. Allowed are 1 to 256 bytes of printable UTF-8 without ':', which ends the id in an owner.
func WithClientID(id string) Option {
	return clientOption(func(c *clientConfig) { c.id, c.idSet = id, true })
}

// WithRenewalBatch bounds the leases that one call to Redis renews: 1 to 4096, by default 256. Larger batches are fewer
// calls, each of which blocks Redis for longer (about 3 µs per lease: "in scripts" of go run -C loadtest .).
func WithRenewalBatch(n int) Option {
	return clientOption(func(c *clientConfig) { c.batch = n })
}

// WithRenewalClient sends renewals through rdb instead of a small pool of their own with the options of the
// client given to New. It should have ContextTimeoutEnabled, connections that nothing else fills, and reach the
// same servers. A call has a sixth of the lease, 5 s at most, in which its hooks run, too. The program closes it, after
// Client.Close. nil is no such client: then it is as without the option.
func WithRenewalClient(rdb redis.UniversalClient) Option {
	return clientOption(func(c *clientConfig) { c.renew = rdb })
}

// WithLossNotifications has Redis tell the client, by its client-side caching (CLIENT TRACKING), when the key of a lock that it holds
// has changed. A lease whose entry is gone, by DEL, FLUSHALL, RENAME or whatever else, is lost some milliseconds later, and not only at the
// next renewal; one that was cut short, by PEXPIRE, is renewed at once. It is for leases that are renewed, of all kinds: nobody asks
// after one of WithFixedLease. For a Quorum, give it to the clients of all nodes.
//
// It costs two connections and two goroutines for each server that has locks of the client, until half a minute after the
// last; and two commands and a message for each grant that is kept for more than 5 ms, and for each renewal: about 3 µs of Redis's CPU
// and 5 µs of the client's (BenchmarkRenewals). Of permits of one semaphore, and of the readers of one lock, the changes that others make are told as well; a
// client looks 50 times a second at most.
//
// What happens while a connection is broken is told when there is another: at once, or after 3 s where nobody noticed. Renewals keep their
// pace, so that of thousands of locks that are lost together some 250 are told of in each 100 ms. SWAPDB is not told at all. Where Redis
// refuses, by its ACL or as a proxy that doesn't know the commands, that is logged once, counted in lockdog.errors as an error of subscribe, and asked again
// each minute; leases go on as without the option.
func WithLossNotifications() Option {
	return clientOption(func(c *clientConfig) { c.lossNotices = true })
}

// WithCallerAttributes puts the attribute lockdog.wait on the span in the ctx of a call that waited: how long, in seconds, calls with that
// span have waited for locks by now. So a slow request shows on its own span whether locks made it slow. A call that didn't wait adds
// nothing. The span acquire, its child, shows each wait by itself.
func WithCallerAttributes() Option {
	return clientOption(func(c *clientConfig) { c.callerAttributes = true })
}

// WithWaitGraph sets how long a wait takes until it is written into the wait graph, which shows who waits for whom in all processes, and the client
// looks for deadlocks. The default is 1s, 100ms to 1h are allowed, and 0 turns both off.
//
// A client with such waits has them in Redis, with an expiry of 5 s: for each the lock that it waits for, since when, the trace, and the leases that its ctx
// carries. A deadlock is a cycle: each ctx in it carries a lease for which the next one waits. It is reported when all of it was true at one
// moment, as a rule 1 to 2 seconds after the last of the waits in it has lasted, by each client for its own waits: in the log, in lockdog.deadlocks and as an event of the
// acquire's span. It then lasts until a wait in it ends, by WithWait, its ctx or WithDeadlockBreaking, or a lease is lost.
//
// Waits for a Mutex, a FairMutex, a Multi and both sides of an RWMutex are followed, of the latter those of readers only to a writer that holds
// the lock. Semaphores, latches and Quorums are not, and neither are leases of other Clients, or of Redisson. It
// is taken for granted that a lease isn't released while a wait goes on whose ctx carries it: don't give Lease.Context to a goroutine that the
// holder doesn't wait for.
//
// It costs nothing for waits that don't last. One that does costs up to 20 commands when it begins to last, and two a second from then on. A look that finds a deadlock
// isn't kept waiting by that: beyond it a client looks once a second. Where Redis's ACL doesn't allow the keys, that is logged once; locks work as without it.
func WithWaitGraph(after time.Duration) Option {
	return clientOption(func(c *clientConfig) { c.graphAfter = after })
}

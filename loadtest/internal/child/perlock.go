package child

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockdog/lockdog/loadtest/internal/wire"
	"github.com/lockdog/lockdog/telemetry"
)

// The scripts do as little as they can: a hash with a field for the owner, and its expiry.
var (
	acquireScript = redis.NewScript(`if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('hset', KEYS[1], ARGV[1], 1)
redis.call('pexpire', KEYS[1], ARGV[2])
return 1`)
	renewScript = redis.NewScript(`if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('pexpire', KEYS[1], ARGV[2])
return 1`)
	releaseScript = redis.NewScript(`if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('del', KEYS[1])
return 1`)
)

// owner is enough: names are of one run only, and each has one holder.
const owner = "loadtest"

// lateAt is the share of the lease from which on lockdog counts a renewal as late.
const lateAt = 0.8

// perLock is the classic watchdog, as Redisson had it up to 3.2x and as it is written by hand in Go: for each lock a goroutine with
// a ticker, which starts when the lock is acquired, and a call at each tick. It counts as lockdog does: the cost of counting is the same.
type perLock struct {
	cfg   *wire.Config
	rdb   redis.UniversalClient
	lease time.Duration
	locks []*tickingLock
	all   sync.WaitGroup // the goroutines of the locks

	lag, batch, utilization    metric.Float64Histogram
	acquires, renews, releases func(context.Context) // calls
	renewed, failed, missing   func(context.Context) // results of renewals
	late                       func(context.Context)
}

// tickingLock is one lock that a goroutine renews.
type tickingLock struct {
	name string
	stop chan struct{}
}

func newPerLock(cfg *wire.Config, rdb redis.UniversalClient, m *meter) *perLock {
	count := func(name string, key attribute.Key, value string) func(context.Context) {
		return m.counter(name, key.String(value))
	}
	return &perLock{
		cfg: cfg, rdb: rdb, lease: seconds(cfg.Lease), locks: make([]*tickingLock, cfg.Locks),
		lag: m.histogram(wire.Lag, "s"), batch: m.histogram(wire.Batch, "s"), utilization: m.histogram(wire.Utilization, "1"),
		acquires: count(wire.Calls, telemetry.KeyPurpose, string(telemetry.PurposeAcquire)),
		renews:   count(wire.Calls, telemetry.KeyPurpose, string(telemetry.PurposeRenew)),
		releases: count(wire.Calls, telemetry.KeyPurpose, string(telemetry.PurposeRelease)),
		renewed:  count(wire.Renewals, telemetry.KeyOutcome, string(telemetry.RenewalRenewed)),
		failed:   count(wire.Renewals, telemetry.KeyOutcome, string(telemetry.RenewalError)),
		missing:  count(wire.Losses, telemetry.KeyCause, string(telemetry.LossMissing)),
		late:     m.counter(wire.Late),
	}
}

// call runs a script as redis.Script.Run does, and then counts the calls: in a storm thousands wait for a connection, which Redis
// hasn't seen.
func (p *perLock) call(ctx context.Context, count func(context.Context), s *redis.Script, name string) (bool, error) {
	args := []any{owner, p.lease.Milliseconds()}
	n, err := s.EvalSha(ctx, p.rdb, []string{name}, args...).Int()
	count(ctx)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		n, err = s.Eval(ctx, p.rdb, []string{name}, args...).Int()
		count(ctx)
	}
	return n == 1, err
}

// warm fills the pool.
func (p *perLock) warm(ctx context.Context) error {
	err := each(ctx, 0, atOnce, 0, func(ctx context.Context, i int) error {
		name := fmt.Sprint("loadtest:warm:", wire.Name(p.cfg.Seed, p.cfg.First), ":", i)
		if _, err := p.call(ctx, p.acquires, acquireScript, name); err != nil {
			return err
		}
		_, err := p.call(ctx, p.releases, releaseScript, name)
		return err
	})
	if err != nil {
		return err
	}
	return p.acquireOne(ctx, 0)
}

func (p *perLock) acquire(ctx context.Context, over time.Duration) error {
	return each(ctx, 1, p.cfg.Locks, over, p.acquireOne)
}

func (p *perLock) acquireOne(ctx context.Context, i int) error {
	l := &tickingLock{name: wire.Name(p.cfg.Seed, p.cfg.First+i), stop: make(chan struct{})}
	sent := time.Now()
	ok, err := p.call(ctx, p.acquires, acquireScript, l.name)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("lock %s is held: does another load test use this Redis, with the same -seed?", l.name)
	}
	p.locks[i] = l
	p.all.Go(func() { p.keep(l, sent) })
	return nil
}

// keep renews one lock until it is released or lost.
func (p *perLock) keep(l *tickingLock, confirmed time.Time) {
	ticker := time.NewTicker(p.lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-l.stop:
			return
		case due := <-ticker.C:
			if !p.renew(l, due, &confirmed) {
				return
			}
		}
	}
}

// renew reports whether the lock is still ours.
func (p *perLock) renew(l *tickingLock, due time.Time, confirmed *time.Time) bool {
	ctx := context.Background()
	sent := time.Now()
	p.lag.Record(ctx, max(sent.Sub(due), 0).Seconds())
	ok, err := p.call(ctx, p.renews, renewScript, l.name)
	now := time.Now()
	p.batch.Record(ctx, now.Sub(sent).Seconds())
	used := now.Sub(*confirmed).Seconds() / p.lease.Seconds()
	p.utilization.Record(ctx, used)
	if used > lateAt {
		p.late(ctx)
	}
	switch {
	case err != nil:
		p.failed(ctx) // the next tick tries again
	case ok:
		p.renewed(ctx)
		*confirmed = sent
	default:
		p.missing(ctx)
	}
	return ok || err != nil
}

func (p *perLock) release(ctx context.Context) (released, lost int, err error) {
	for _, l := range p.locks {
		if l != nil {
			close(l.stop)
		}
	}
	p.all.Wait()
	return releaseAll(ctx, len(p.locks), func(ctx context.Context, i int) (ours, lost int64, err error) {
		if p.locks[i] == nil {
			return 0, 0, nil // the run was interrupted while locks were acquired
		}
		ok, err := p.call(ctx, p.releases, releaseScript, p.locks[i].name)
		if err == nil && !ok {
			lost = 1
		} else if ok {
			ours = 1
		}
		return ours, lost, err
	})
}

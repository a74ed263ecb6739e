package load

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockdog/lockdog/telemetry"
)

// The scripts do the minimum: a hash with a field for the owner, and its expiry.
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

// owner is the same for all locks: each run has its own Redis, and each name has one holder at a time.
const owner = "loadtest"

// lateAt is the share of the lease after which lockdog counts a renewal as late.
const lateAt = 0.8

// perLock is the classic watchdog, as Redisson had it before it got lockWatchdogBatchSize (3.44), and as it is often
// written by hand in Go: for each lock a goroutine with a ticker, which starts with the acquire, and a call at each
// tick. It records the same metrics as lockdog, so that this costs the same.
type perLock struct {
	rdb   redis.UniversalClient
	lease time.Duration
	held  []*tickingLock

	lag, batch, utilization    metric.Float64Histogram
	acquires, renews, releases func(context.Context) // calls
	renewed, failed, missing   func(context.Context) // results of renewals
	late                       func(context.Context)
}

// tickingLock is one lock that a goroutine renews.
type tickingLock struct {
	name        string
	stop, ended chan struct{}
}

func newPerLock(cfg Config, rdb redis.UniversalClient, m *meter) locks {
	return &perLock{
		rdb: rdb, lease: seconds(cfg.Lease), held: make([]*tickingLock, cfg.Locks),
		lag: m.histogram(Lag), batch: m.histogram(Batch), utilization: m.histogram(Utilization),
		acquires: m.counter(Calls, string(telemetry.PurposeAcquire)),
		renews:   m.counter(Calls, string(telemetry.PurposeRenew)),
		releases: m.counter(Calls, string(telemetry.PurposeRelease)),
		renewed:  m.counter(Renewals, string(telemetry.RenewalRenewed)),
		failed:   m.counter(Renewals, string(telemetry.RenewalError)),
		missing:  m.counter(Losses, string(telemetry.LossMissing)),
		late:     m.counter(Late, ""),
	}
}

// call runs a script as redis.Script.Run does, and counts the calls after the reply: in a storm, thousands of calls
// wait for a connection, and Redis hasn't received them.
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

func (p *perLock) cycle(ctx context.Context, name string, _ bool) error {
	if _, err := p.call(ctx, p.acquires, acquireScript, name); err != nil {
		return err
	}
	_, err := p.call(ctx, p.releases, releaseScript, name)
	return err
}

func (p *perLock) take(ctx context.Context, i int, name string) error {
	sent := time.Now()
	ok, err := p.call(ctx, p.acquires, acquireScript, name)
	if err == nil && !ok {
		err = fmt.Errorf("lock %s is held", name)
	}
	if err != nil {
		return err
	}
	l := &tickingLock{name: name, stop: make(chan struct{}), ended: make(chan struct{})}
	p.held[i] = l
	go p.keep(l, sent)
	return nil
}

// keep renews one lock until it is released or lost.
func (p *perLock) keep(l *tickingLock, confirmed time.Time) {
	defer close(l.ended)
	ticker := time.NewTicker(p.lease / 3)
	defer ticker.Stop()
	ctx := context.Background()
	for {
		var due time.Time
		select {
		case <-l.stop:
			return
		case due = <-ticker.C:
		}
		sent := time.Now()
		p.lag.Record(ctx, max(sent.Sub(due), 0).Seconds())
		ok, err := p.call(ctx, p.renews, renewScript, l.name)
		now := time.Now()
		p.batch.Record(ctx, now.Sub(sent).Seconds())
		used := now.Sub(confirmed).Seconds() / p.lease.Seconds()
		p.utilization.Record(ctx, used)
		if used > lateAt {
			p.late(ctx)
		}
		switch {
		case err != nil:
			p.failed(ctx) // the next tick tries again
		case ok:
			p.renewed(ctx)
			confirmed = sent
		default:
			p.missing(ctx)
			return
		}
	}
}

func (p *perLock) drop(ctx context.Context, i int) (taken, ours bool, err error) {
	l := p.held[i]
	if l == nil {
		return false, false, nil
	}
	close(l.stop)
	<-l.ended
	ours, err = p.call(ctx, p.releases, releaseScript, l.name)
	return true, ours, err
}

func (p *perLock) end(context.Context) error { return nil }

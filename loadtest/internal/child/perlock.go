package child

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockdog/lockdog/loadtest/internal/wire"
	"github.com/lockdog/lockdog/telemetry"
)

// perLock is the classic watchdog, as Redisson had it up to 3.2x and as it is written by hand in Go: for each lock a goroutine with
// a ticker, which starts when the lock is taken, and a call at each tick. It counts as lockdog does, so that the cost of counting
// is the same.
type perLock struct {
	cfg   *wire.Config
	rdb   redis.UniversalClient
	locks []*tickingLock

	lag, batch, utilization metric.Float64Histogram
	renewals, calls, losses metric.Int64Counter
	renewed, failed         metric.MeasurementOption
	acquires, renews, frees metric.MeasurementOption
	missing                 metric.MeasurementOption
}

// The scripts do as little as they can: a hash with a field for the owner, and its expiry.
var (
	takeScript = redis.NewScript(`if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('hset', KEYS[1], ARGV[1], 1)
redis.call('pexpire', KEYS[1], ARGV[2])
return 1`)
	renewScript = redis.NewScript(`if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('pexpire', KEYS[1], ARGV[2])
return 1`)
	freeScript = redis.NewScript(`if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('del', KEYS[1])
return 1`)
)

// owner is enough: names are of one run only, and each has one holder.
const owner = "loadtest"

// tickingLock is one lock and the goroutine that renews it.
type tickingLock struct {
	name string
	stop chan struct{}
	done chan struct{}
}

func newPerLock(cfg *wire.Config, rdb redis.UniversalClient, m *meter) (*perLock, error) {
	p := &perLock{cfg: cfg, rdb: rdb, locks: make([]*tickingLock, cfg.Locks)}
	var errs [6]error
	p.lag, errs[0] = m.histogram(telemetry.MetricScheduleLag.Name, "s")
	p.batch, errs[1] = m.histogram(telemetry.MetricBatchDuration.Name, "s")
	p.utilization, errs[2] = m.histogram(telemetry.MetricUtilization.Name, "1")
	p.renewals, errs[3] = m.counter(telemetry.MetricRenewals.Name)
	p.calls, errs[4] = m.counter(telemetry.MetricCommands.Name)
	p.losses, errs[5] = m.counter(telemetry.MetricLosses.Name)
	p.renewed, p.failed = attributeSet(telemetry.KeyOutcome, telemetry.RenewalRenewed), attributeSet(telemetry.KeyOutcome, telemetry.RenewalError)
	p.acquires, p.renews = attributeSet(telemetry.KeyPurpose, telemetry.PurposeAcquire), attributeSet(telemetry.KeyPurpose, telemetry.PurposeRenew)
	p.frees, p.missing = attributeSet(telemetry.KeyPurpose, telemetry.PurposeRelease), attributeSet(telemetry.KeyCause, telemetry.LossMissing)
	return p, errors.Join(errs[:]...)
}

func attributeSet[V ~string](key attribute.Key, value V) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(key.String(string(value))))
}

// call runs a script as redis.Script.Run does, and counts what it sent: not before, as in a storm thousands of calls wait for
// a connection, which Redis hasn't seen.
func (p *perLock) call(ctx context.Context, purpose metric.MeasurementOption, s *redis.Script, name string, args ...any) (bool, error) {
	n, err := s.EvalSha(ctx, p.rdb, []string{name}, args...).Int()
	p.calls.Add(ctx, 1, purpose.(metric.AddOption))
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		n, err = s.Eval(ctx, p.rdb, []string{name}, args...).Int()
		p.calls.Add(ctx, 1, purpose.(metric.AddOption))
	}
	return n == 1, err
}

// warm fills the pool.
func (p *perLock) warm(ctx context.Context) error {
	err := crowd(ctx, 0, crowdSize, 0, func(ctx context.Context, i int) error {
		name := fmt.Sprint("loadtest:warm:", wire.Name(p.cfg.Seed, p.cfg.First), ":", i)
		if _, err := p.call(ctx, p.acquires, takeScript, name, owner, seconds(p.cfg.Lease).Milliseconds()); err != nil {
			return err
		}
		_, err := p.call(ctx, p.frees, freeScript, name, owner)
		return err
	})
	if err != nil {
		return err
	}
	return p.take(ctx, 0)
}

func (p *perLock) acquire(ctx context.Context, over time.Duration) error {
	return crowd(ctx, 1, p.cfg.Locks, over, p.take)
}

func (p *perLock) take(ctx context.Context, i int) error {
	l := &tickingLock{name: wire.Name(p.cfg.Seed, p.cfg.First+i), stop: make(chan struct{}), done: make(chan struct{})}
	sent := time.Now()
	ok, err := p.call(ctx, p.acquires, takeScript, l.name, owner, seconds(p.cfg.Lease).Milliseconds())
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("lock %s is held: does another load test use this Redis, with the same -seed?", l.name)
	}
	p.locks[i] = l
	go p.keep(l, sent)
	return nil
}

// keep renews one lock until it is released or lost.
func (p *perLock) keep(l *tickingLock, confirmed time.Time) {
	defer close(l.done)
	lease := seconds(p.cfg.Lease)
	ticker := time.NewTicker(lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-l.stop:
			return
		case due := <-ticker.C:
			if !p.renew(l, due, &confirmed, lease) {
				return
			}
		}
	}
}

// renew reports whether the lock is still ours.
func (p *perLock) renew(l *tickingLock, due time.Time, confirmed *time.Time, lease time.Duration) bool {
	ctx := context.Background()
	sent := time.Now()
	p.lag.Record(ctx, max(sent.Sub(due), 0).Seconds())
	ok, err := p.call(ctx, p.renews, renewScript, l.name, owner, lease.Milliseconds())
	now := time.Now()
	p.batch.Record(ctx, now.Sub(sent).Seconds())
	p.utilization.Record(ctx, now.Sub(*confirmed).Seconds()/lease.Seconds())
	switch {
	case err != nil:
		p.renewals.Add(ctx, 1, p.failed.(metric.AddOption)) // the next tick tries again
	case ok:
		p.renewals.Add(ctx, 1, p.renewed.(metric.AddOption))
		*confirmed = sent
	default:
		p.losses.Add(ctx, 1, p.missing.(metric.AddOption))
	}
	return ok || err != nil
}

func (p *perLock) release(ctx context.Context) (released, lost int, err error) {
	p.stop()
	var ok, gone atomic.Int64
	err = crowd(ctx, 0, len(p.locks), 0, func(ctx context.Context, i int) error {
		if p.locks[i] == nil {
			return nil
		}
		ours, err := p.call(ctx, p.frees, freeScript, p.locks[i].name, owner)
		if ours {
			ok.Add(1)
		} else if err == nil {
			gone.Add(1)
		}
		return err
	})
	return int(ok.Load()), int(gone.Load()), err
}

// stop ends the goroutines.
func (p *perLock) stop() {
	var all sync.WaitGroup
	for _, l := range p.locks {
		if l == nil {
			continue
		}
		select {
		case <-l.stop:
		default:
			close(l.stop)
		}
		all.Go(func() { <-l.done })
	}
	all.Wait()
}

func (p *perLock) close() error {
	p.stop()
	return nil
}

package child

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

const (
	metricSent   = "loadtest.sent"
	metricErrors = "loadtest.errors"

	foregroundKeys   = 1000
	foregroundValue  = 100 // bytes
	foregroundFlight = 512 // commands at a time; what comes on top waits, and its latency tells
	foregroundExpiry = time.Minute
)

// foreground is ordinary traffic: GETs, and a SET in ten, at random times. It is an open loop: commands don't wait for answers to earlier
// ones, and their latency counts from the time they were due. So a Redis that stands still shows in all the commands that it
// should have answered meanwhile.
type foreground struct {
	cfg          *wire.Config
	rdb          redis.UniversalClient
	latency      metric.Float64Histogram
	sent, failed metric.Int64Counter

	stop context.CancelFunc
	done chan struct{}
}

func newForeground(cfg *wire.Config, rdb redis.UniversalClient, m *meter) (*foreground, error) {
	f := &foreground{cfg: cfg, rdb: rdb, stop: func() {}}
	var errs [3]error
	f.latency, errs[0] = m.histogram(metricLatency, "s")
	f.sent, errs[1] = m.counter(metricSent)
	f.failed, errs[2] = m.counter(metricErrors)
	return f, errors.Join(errs[:]...)
}

func (f *foreground) key(i int) string { return "loadtest:foreground:" + strconv.Itoa(i) }

// warm fills the keys, and the pool.
func (f *foreground) warm(ctx context.Context) error {
	return crowd(ctx, 0, foregroundKeys, 0, func(ctx context.Context, i int) error {
		return f.rdb.Set(ctx, f.key(i), strings.Repeat("x", foregroundValue), foregroundExpiry).Err()
	})
}

// acquire starts the traffic.
func (f *foreground) acquire(context.Context, time.Duration) error {
	ctx, stop := context.WithCancel(context.Background())
	f.stop, f.done = stop, make(chan struct{})
	go func() {
		defer close(f.done)
		f.run(ctx)
	}()
	return nil
}

func (f *foreground) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	flight := make(chan struct{}, foregroundFlight)
	random := rand.New(rand.NewPCG(f.cfg.Seed, 1))
	value := strings.Repeat("x", foregroundValue)
	next := time.Now()
	for {
		next = next.Add(seconds(random.ExpFloat64() / f.cfg.Rate))
		// Not with sleepUntil, which lets commands go a millisecond early.
		if left := time.Until(next); left > 0 {
			timer := time.NewTimer(left)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		} else if ctx.Err() != nil {
			return
		}
		due, key, write := next, f.key(random.IntN(foregroundKeys)), random.IntN(10) == 0
		flight <- struct{}{}
		all.Go(func() {
			defer func() { <-flight }()
			f.send(due, key, write, value)
		})
	}
}

// send sends one command. It is finished, and counted, also when the traffic was stopped meanwhile.
func (f *foreground) send(due time.Time, key string, write bool, value string) {
	ctx := context.Background()
	f.sent.Add(ctx, 1)
	var err error
	if write {
		err = f.rdb.Set(ctx, key, value, foregroundExpiry).Err()
	} else {
		err = f.rdb.Get(ctx, key).Err()
	}
	f.latency.Record(ctx, time.Since(due).Seconds())
	if err != nil && !errors.Is(err, redis.Nil) {
		f.failed.Add(ctx, 1)
	}
}

// release stops the traffic.
func (f *foreground) release(context.Context) (released, lost int, err error) { return 0, 0, f.close() }

func (f *foreground) close() error {
	f.stop()
	if f.done != nil {
		<-f.done
	}
	return nil
}

package child

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"
)

const (
	foregroundKeys   = 1000
	foregroundLimit  = 512 // commands at a time; further ones wait, and their latency tells
	foregroundExpiry = time.Minute
)

var foregroundValue = strings.Repeat("x", 100)

// foreground is ordinary traffic: GETs, and a SET in ten, at random times. Commands do not wait for replies to earlier ones, and their
// latency counts from the time they were due. A Redis that stands still therefore shows in all commands due meanwhile.
type foreground struct {
	cfg          *Config
	rdb          redis.UniversalClient
	latency      metric.Float64Histogram
	sent, failed func(context.Context)

	stop context.CancelFunc
	done chan struct{}
}

func newForeground(cfg *Config, rdb redis.UniversalClient, m *meter) *foreground {
	return &foreground{
		cfg: cfg, rdb: rdb, stop: func() {},
		latency: m.histogram(Latency, "s"), sent: m.counter(Sent), failed: m.counter(Errors),
	}
}

func foregroundKey(i int) string { return "loadtest:foreground:" + strconv.Itoa(i) }

// warm fills the keys, and the pool.
func (f *foreground) warm(ctx context.Context) error {
	return each(ctx, 0, foregroundKeys, 0, func(ctx context.Context, i int) error {
		return f.rdb.Set(ctx, foregroundKey(i), foregroundValue, foregroundExpiry).Err()
	})
}

// acquire starts the traffic.
func (f *foreground) acquire(context.Context, time.Duration) error {
	ctx, stop := context.WithCancel(context.Background())
	f.stop, f.done = stop, make(chan struct{})
	go func() {
		defer close(f.done)
		_ = paced(ctx, foregroundLimit, arrivals(f.cfg.Rate), f.send) // errors are counted
	}()
	return nil
}

// send sends one command. It is finished, and counted, also when the traffic was stopped meanwhile.
func (f *foreground) send(_ context.Context, _ int, due time.Time) error {
	ctx := context.Background()
	f.sent(ctx)
	var err error
	if key := foregroundKey(rand.IntN(foregroundKeys)); rand.IntN(10) == 0 {
		err = f.rdb.Set(ctx, key, foregroundValue, foregroundExpiry).Err()
	} else {
		err = f.rdb.Get(ctx, key).Err()
	}
	f.latency.Record(ctx, time.Since(due).Seconds())
	if err != nil && !errors.Is(err, redis.Nil) {
		f.failed(ctx)
	}
	return nil
}

// release stops the traffic.
func (f *foreground) release(context.Context) (released, lost int, err error) {
	f.stop()
	if f.done != nil {
		<-f.done
	}
	return 0, 0, nil
}

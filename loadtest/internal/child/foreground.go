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
	foregroundLimit  = 512 // maximum of concurrent commands; further ones wait, and their latency includes the wait
	foregroundExpiry = time.Minute
)

var foregroundValue = strings.Repeat("x", 100)

// foreground is ordinary traffic at random times: GETs, and one SET in ten. Commands don't wait for the replies to
// earlier ones, and their latency starts at the time when they are due. So if Redis stands still, all commands that are
// due in that time show it.
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

// warm fills the keys and the connection pool.
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

// send sends one command. It completes and counts the command even if the traffic is stopped in the meantime.
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

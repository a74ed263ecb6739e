package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/loadtest/internal/hist"
)

const (
	foregroundKeys   = 1000
	foregroundLimit  = 512 // maximum of concurrent commands; further ones wait, and their latency includes the wait
	foregroundExpiry = time.Minute
)

var foregroundValue = strings.Repeat("x", 100)

// Foreground is ordinary traffic at random times: GETs, and one SET in ten. Up to foregroundLimit commands don't wait
// for the replies to earlier ones, and their latency starts at the time when they are due. So if Redis stands still,
// all commands that are due in that time show it.
type Foreground struct {
	rdb  redis.UniversalClient
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	latency hist.Hist
}

// StartForeground fills the keys and the connection pool, and starts the traffic: rate commands per second.
func StartForeground(ctx context.Context, addrs []string, cluster bool, rate float64) (*Foreground, error) {
	f := &Foreground{rdb: connect(addrs, cluster), done: make(chan struct{})}
	err := each(ctx, 0, foregroundKeys, 0, func(ctx context.Context, i int) error {
		return f.rdb.Set(ctx, foregroundKey(i), foregroundValue, foregroundExpiry).Err()
	})
	if err != nil {
		return nil, errors.Join(err, f.rdb.Close())
	}
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(f.done)
		_ = paced(ctx, foregroundLimit, arrivals(rate), f.send) // it ends when ctx is canceled
	}()
	return f, nil
}

func foregroundKey(i int) string { return "loadtest:foreground:" + strconv.Itoa(i) }

// send sends one command. It completes and counts the command even if the traffic is stopped in the meantime.
func (f *Foreground) send(_ context.Context, _ int, due time.Time) error {
	ctx := context.Background()
	if key := foregroundKey(rand.IntN(foregroundKeys)); rand.IntN(10) == 0 {
		_ = f.rdb.Set(ctx, key, foregroundValue, foregroundExpiry).Err() // a failed command counts like the others
	} else {
		_ = f.rdb.Get(ctx, key).Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latency.Add(time.Since(due))
	return nil
}

// Take returns the latencies of the commands since the last call of Take.
func (f *Foreground) Take() hist.Hist {
	f.mu.Lock()
	defer f.mu.Unlock()
	latency := f.latency
	f.latency = hist.Hist{}
	return latency
}

// Close stops the traffic, and waits for its commands.
func (f *Foreground) Close() error {
	f.stop()
	<-f.done
	return f.rdb.Close()
}

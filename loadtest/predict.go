package main

import (
	"math"
	"slices"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
	"github.com/lockdog/lockdog/watchdog"
)

// redissonBatch is how many locks one call of Redisson's renews, by default (Config.lockWatchdogBatchSize).
const redissonBatch = 100

// slots of a Redis Cluster.
const slots = 16384

// predict is how many calls per second the renewals should take: locks ÷ interval ÷ batch, in whole calls of each client to
// each node.
func predict(mode string, locks, clients, nodes int, interval time.Duration) report.Figure {
	calls := 0.0
	for i := range clients {
		n := float64(locks*(i+1)/clients - locks*i/clients)
		switch mode {
		case wire.PerLock:
			calls += n
		case wire.Batched:
			calls += float64(nodes) * math.Ceil(n/float64(nodes)/watchdog.DefaultBatchSize)
		case wire.Redisson:
			if nodes == 1 {
				calls += math.Ceil(n / redissonBatch)
			} else {
				// One per slot that has locks, as names are spread over the slots by chance.
				calls += slots * (1 - math.Pow(1-1.0/slots, n))
			}
		}
	}
	return report.Figure(calls / interval.Seconds())
}

// curves are the predictions around the numbers of locks that were measured, those included.
func (b *bench) curves() []report.Curve {
	const perDecade = 12
	var locks []int
	first, last := b.locks[0], b.locks[len(b.locks)-1]
	for at := float64(first) / 2; at < 3*float64(last); at *= math.Pow(10, 1.0/perDecade) {
		locks = append(locks, int(at))
	}
	locks = append(locks, b.locks...)
	slices.Sort(locks)
	locks = slices.Compact(locks)
	var curves []report.Curve
	for _, mode := range b.modes {
		if mode == wire.None {
			continue
		}
		c := report.Curve{Mode: mode, Locks: locks}
		for _, n := range locks {
			c.Calls = append(c.Calls, predict(mode, n, b.clients, len(b.addrs), b.interval()))
		}
		curves = append(curves, c)
	}
	return curves
}

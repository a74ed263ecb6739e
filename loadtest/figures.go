package main

import (
	"math"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/internal/hist"
	"github.com/lockdog/lockdog/loadtest/internal/load"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// figures returns the figures of what was measured. idle is the window of the run without renewal. If it is nil,
// nothing is subtracted.
func (h *holders) figures(idle *window) figures.Figures {
	w := h.window
	s := w.seconds()
	f := figures.Figures{
		figures.Predicted: predict(h.mode, h.locks, h.b.clients, len(h.b.addrs), h.b.interval()),
		figures.Calls:     float64(sample.Sort(w.info.Commands, 0).Scripts) / s,
		figures.Peak:      float64(sample.Peak(sample.Between(h.points, w.from, w.to))),
		figures.Lost:      float64(h.lost),
	}
	// A client that doesn't count is assumed to renew on time.
	renewals := float64(h.locks) * s / h.b.interval().Seconds()
	if w.own.Counts != nil {
		renewals = float64(w.own.Count(load.Renewals, string(telemetry.RenewalRenewed)))
		f[figures.OwnCalls], f[figures.Renewals] = float64(w.own.Total(load.Calls))/s, renewals/s
		f[figures.Late] = float64(h.counts.Total(load.Late) - h.warmed)
	}
	h.costs(f, idle, renewals)
	quantile := func(k figures.Key, unit time.Duration, times hist.Hist, q float64) {
		if times.Count() > 0 {
			f[k] = float64(times.Quantile(q)) / float64(unit)
		}
	}
	quantile(figures.CallP50, time.Millisecond, w.own.Times[load.Batch], .5)
	quantile(figures.CallP99, time.Millisecond, w.own.Times[load.Batch], .99)
	quantile(figures.LagP99, time.Millisecond, w.own.Times[load.Lag], .99)
	quantile(figures.Utilization, time.Second, w.own.Times[load.Utilization], .999) // 1 s is the whole lease
	if w.foreground != nil {
		doubt := doubt(.99, w.foreground.Count())
		quantile(figures.ForegroundP99, time.Millisecond, *w.foreground, .99)
		quantile(figures.ForegroundLow, time.Millisecond, *w.foreground, .99-doubt)
		quantile(figures.ForegroundHigh, time.Millisecond, *w.foreground, min(.99+doubt, 1))
	}
	// Each client's first lock isn't counted: base contains it, together with what a client needs only once.
	per := func(full, base int64) float64 { return float64(full-base) / float64(h.locks-h.b.clients) }
	f[figures.GoroutinesPerLock] = per(int64(h.full.Goroutines), int64(h.base.Goroutines))
	f[figures.HeapPerLock], f[figures.StackPerLock] = per(h.full.Heap, h.base.Heap), per(h.full.Stacks, h.base.Stacks)
	return f
}

// costs sets what this run used in addition to the run without renewal.
func (h *holders) costs(f figures.Figures, idle *window, renewals float64) {
	w := h.window
	redis, clients := w.info.CPU.Seconds(), w.own.CPU
	if idle != nil {
		share := w.seconds() / idle.seconds()
		redis -= idle.info.CPU.Seconds() * share
		clients -= idle.own.CPU * share
	}
	f[figures.RedisShare] = 100 * redis / w.seconds()
	if renewals > 0 && h.mode != load.None {
		scripts := (w.info.Commands["evalsha"].CPU + w.info.Commands["eval"].CPU).Seconds()
		// A difference of two large numbers may be too small, even negative. The true cost can't be less than the CPU
		// time of the scripts.
		f[figures.RedisPerRenewal] = 1e6 * max(redis, scripts) / renewals
		f[figures.ScriptsPerRenewal] = 1e6 * scripts / renewals
		f[figures.ClientPerRenewal] = 1e6 * clients / renewals
	}
}

// doubt returns d such that in 95 of 100 cases the true q-quantile is between the quantiles q-d and q+d of n values.
// Ranks have a binomial distribution.
func doubt(q float64, n int64) float64 {
	const deviations = 1.96
	return deviations * math.Sqrt(q*(1-q)/float64(max(n, 1)))
}

const (
	redissonBatch = 100   // locks that one call of Redisson renews by default (Config.lockWatchdogBatchSize)
	slots         = 16384 // of a Redis Cluster

	agentCalls = 40              // of an agent per node, at least, if it has as many clients
	warmFor    = 2 * time.Minute // a client with an agent renews by itself that often
)

// predict returns how many calls per second the renewals should take: locks ÷ interval ÷ batch, rounded up to whole
// calls of each client to each node.
func predict(mode string, locks, clients, nodes int, interval time.Duration) float64 {
	if mode == load.Agent {
		full := math.Ceil(float64(locks/nodes) / watchdog.DefaultBatchSize)
		calls := max(full, min(agentCalls, float64(clients)))
		return float64(nodes) * (calls/interval.Seconds() + float64(clients)/warmFor.Seconds())
	}
	calls := 0.0
	for i := range clients {
		n := float64(locks*(i+1)/clients - locks*i/clients)
		switch {
		case mode == load.PerLock:
			calls += n
		case mode == load.Batched:
			calls += float64(nodes) * math.Ceil(n/float64(nodes)/watchdog.DefaultBatchSize)
		case mode == load.Redisson && nodes == 1:
			calls += math.Ceil(n / redissonBatch)
		case mode == load.Redisson: // one call per slot that has locks; names are spread over the slots at random
			calls += slots * (1 - math.Pow(1-1.0/slots, n))
		}
	}
	return calls / interval.Seconds()
}

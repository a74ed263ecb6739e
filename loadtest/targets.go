package main

import (
	"fmt"
	"math"

	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/internal/load"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/watchdog"
)

// What lockdog promises, as far as a machine with two cores can show it.
const (
	heapLimit     = 760  // bytes per lock: 700, and 60 for the key of its slot's token counter, which few locks share
	heapLocks     = 50   // of each client, at least, that share what a client needs only once
	goroutineMost = 0.05 // none per lock; but the client starts a few later
	cpuShare      = 0.2  // of the CPU per renewal in per-lock mode
	clusterCalls  = 15   // per second, for 10,000 locks on three nodes
	utilizationP  = 0.5  // in a soak
	latencyLocks  = 10_000
)

// callLimits has the maximum calls per second by number of locks, with the default lease on one server.
var callLimits = map[int]float64{1000: 0.5, 10_000: 4.5, 100_000: 45}

// verdicts compares the rows with the promises.
func (rep *report) verdicts() (verdicts []string) {
	b := rep.b
	for _, r := range rep.rows {
		if r.mode != load.Batched {
			continue
		}
		atMost := func(t figures.Target) {
			t.What = fmt.Sprintf("%d locks: %s", r.locks, t.What)
			if other := rep.find(t.Base, r.locks); other != nil {
				verdicts = append(verdicts, t.Verdict(r.rounds, other.rounds))
			} else if t.Base == "" {
				verdicts = append(verdicts, t.Verdict(r.rounds, nil))
			}
		}
		limit, known := callLimits[r.locks]
		if b.cluster {
			limit, known = clusterCalls, r.locks == 10_000
		}
		fullBatches := r.locks >= b.clients*watchdog.DefaultBatchSize
		if known && fullBatches && b.lease == lock.DefaultLease && b.churn == 0 {
			atMost(figures.Target{What: "calls", Key: figures.Calls, Limit: limit, Unit: "/s"})
		}
		if b.churn == 0 {
			const what = "calls in the worst 100 ms, of each client to each node the mean, rounded up, plus one"
			atMost(figures.Target{What: what, Key: figures.Peak, Limit: b.trickle(r)})
		}
		atMost(figures.Target{What: "late renewals", Key: figures.Late})
		atMost(figures.Target{What: "goroutines per lock", Key: figures.GoroutinesPerLock, Limit: goroutineMost})
		if r.locks >= heapLocks*b.clients {
			atMost(figures.Target{What: "heap per lock", Key: figures.HeapPerLock, Limit: heapLimit, Unit: "bytes"})
		}
		if b.soak > 0 {
			atMost(figures.Target{What: "lease used up, p99.9", Key: figures.Utilization, Limit: utilizationP})
		}
		atMost(figures.Target{
			What: "Redis CPU per renewal", Key: figures.RedisPerRenewal, Limit: cpuShare, Base: load.PerLock, Unit: "µs",
		})
		if r.locks <= latencyLocks { // compared with the noise of the run without renewal
			atMost(figures.Target{
				What: "least p99 of others' commands", Key: figures.ForegroundLow, Limit: 1, Unit: "ms",
				Base: load.None, BaseKey: figures.ForegroundHigh,
			})
		}
	}
	return verdicts
}

// trickle returns the limit for the promise that renewals never come in a storm. In 100 ms each client may send each
// node the mean number of its calls, rounded up, plus one. Clients and nodes don't coordinate, so the limit is the sum.
// If a short window happened to have fewer calls than the locks need, the predicted mean counts.
func (b *bench) trickle(r *row) float64 {
	pairs := float64(b.clients * len(b.addrs))
	calls, _ := r.rounds.Get(figures.Calls)
	predicted, _ := r.rounds.Get(figures.Predicted)
	return pairs * (math.Ceil(max(calls, predicted)*sample.Window.Seconds()/pairs) + 1)
}

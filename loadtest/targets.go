package main

import (
	"fmt"
	"math"

	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/internal/load"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/lock"
)

// What lockdog promises, as far as a machine with two cores can show it.
const (
	heapLimit     = 760  // bytes per lock: 700, and 60 for the key of its slot's token counter, which few locks share
	goroutineMost = 0.05 // per lock: none, except a few of the client's own that start later
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
		most := func(key figures.Key, what string, limit float64, unit string) figures.Target {
			return figures.Target{
				What: fmt.Sprintf("%d locks: %s", r.locks, what), Key: key, AtMost: true, Limit: limit, Unit: unit,
			}
		}
		atMost := func(key figures.Key, what string, limit float64, unit string) {
			verdicts = append(verdicts, most(key, what, limit, unit).Verdict(r.rounds, nil))
		}
		beside := func(mode string, key, baseKey figures.Key, what string, limit float64, unit string) {
			if base := rep.find(mode, r.locks); base != nil {
				t := most(key, what, limit, unit)
				t.Base, t.BaseKey = mode, baseKey
				verdicts = append(verdicts, t.Verdict(r.rounds, base.rounds))
			}
		}
		limit, known := callLimits[r.locks]
		if b.cluster {
			limit, known = clusterCalls, r.locks == 10_000
		}
		if known && b.lease == lock.DefaultLease && b.churn == 0 {
			atMost(figures.Calls, "calls", limit, "/s")
		}
		if b.churn == 0 {
			atMost(figures.Peak,
				"calls in the worst 100 ms, of each client to each node the mean, rounded up, plus one", b.trickle(
					r), "")
		}
		atMost(figures.Late, "late renewals", 0, "")
		atMost(figures.GoroutinesPerLock, "goroutines per lock", goroutineMost, "")
		atMost(figures.HeapPerLock, "heap per lock", heapLimit, "bytes")
		if b.soak > 0 {
			atMost(figures.Utilization, "lease used up, p99.9", utilizationP, "")
		}
		beside(load.PerLock, figures.RedisPerRenewal, "", "Redis CPU per renewal", cpuShare, "µs")
		if r.locks <= latencyLocks { // compared with the noise of the run without renewal
			beside(load.None, figures.ForegroundLow, figures.ForegroundHigh,
				"least p99 of others' commands", 1, "ms")
		}
	}
	return verdicts
}

// trickle returns the limit for the promise that renewals never come in a storm: at most the mean, rounded up, plus one
// call of each client to each node in 100 ms. Clients and nodes don't coordinate. If a short window happened to have
// fewer calls than the locks need, the predicted mean counts.
func (b *bench) trickle(r *row) float64 {
	pairs := float64(b.clients * len(b.addrs))
	calls, _ := r.rounds.Get(figures.Calls)
	predicted, _ := r.rounds.Get(figures.Predicted)
	return pairs * (math.Ceil(max(calls, predicted)*sample.Window.Seconds()/pairs) + 1)
}

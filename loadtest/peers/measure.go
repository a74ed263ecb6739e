package main

import (
	"maps"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/internal/hist"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
	"github.com/lockdog/lockdog/loadtest/peers/internal/witness"
	"github.com/lockdog/lockdog/loadtest/peers/internal/work"
)

// figuresOf computes the figures of one measurement.
func figuresOf(w *workload, name string, results []work.Result, e sample.Info) figures.Figures {
	f := figures.Figures{figures.Overlaps: 0}
	if w.kind == work.Loss {
		maps.Copy(f, results[0].Told)
		return f
	}
	var mallocs, bytes float64
	var cpu time.Duration
	var times, handoffs hist.Hist
	var perGoroutine, perProcess []int64
	var total, window witness.Tally
	for _, r := range results {
		perGoroutine, perProcess = append(perGoroutine, r.Counts...), append(perProcess, r.Window.Operations)
		mallocs, bytes, cpu = mallocs+float64(r.Mallocs), bytes+float64(r.Bytes), cpu+r.CPU
		times.Merge(r.Times)
		handoffs.Merge(r.Handoffs)
		total.Add(r.Total)
		window.Add(r.Window)
		f[figures.Stuck] += float64(r.Stuck)
		f[figures.Unserved] += float64(r.Unserved)
		f[figures.Overlaps] = max(f[figures.Overlaps], float64(r.Overlaps))
	}
	all := float64(total.Operations)
	seconds := results[0].Seconds
	f[figures.P50], f[figures.P99] = micros(times.Quantile(.5)), micros(times.Quantile(.99))
	f[figures.Longest] = millis(times.Most)
	f[figures.Rate] = float64(window.Operations) / seconds
	perOp := func(k figures.Key, x float64) {
		if all > 0 {
			f[k] = x / all
		}
	}
	perOp(figures.Allocs, mallocs)
	perOp(figures.Bytes, bytes)
	perOp(figures.ClientCPU, micros(cpu))
	perOp(figures.RedisCPU, micros(e.CPU))

	each := all // the number by which commands are divided
	if w.kind == work.Shared {
		f[figures.Goroutines] = figures.Ratio(perGoroutine)
		turns := float64(window.Handed)
		each = float64(total.Handed)
		if w.processes > 1 {
			f[figures.Processes] = figures.Ratio(perProcess)
			turns, each = float64(window.Between), float64(total.Between)
			if handoffs.Count() > 0 {
				f[figures.HandoffP50] = micros(handoffs.Quantile(.5))
			}
		}
		f[figures.Handoffs] = turns / seconds
	}
	if each > 0 {
		var plain int64
		if peer.SendsSet(name) {
			plain = e.Commands["set"].Calls
		}
		c := sample.Sort(e.Commands, plain)
		f[figures.Commands], f[figures.InLua] = float64(c.Received)/each, float64(c.InLua)/each
	}
	return f
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

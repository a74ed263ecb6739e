package main

import (
	"math"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
	"github.com/lockdog/lockdog/telemetry"
)

// row makes figures of one window. idle is the window of the run without renewal; nil if there is none, and nothing is subtracted.
func (h *holders) row(w, idle *window) report.Row {
	s := w.seconds()
	commands, renewed := w.commands(), w.renewed()
	r := report.Row{
		Mode: h.mode, Locks: h.locks, Clients: h.b.clients, Rounds: 1, Window: report.Figure(s), Interval: h.b.interval().Seconds(),
		Predicted: predict(h.mode, h.locks, h.b.clients, len(h.b.addrs), h.b.interval()),
		Calls:     report.Figure(float64(commands.Scripts) / s), Received: report.Figure(float64(commands.Received()) / s),
		Own: report.None(), InLua: report.Figure(float64(commands.InLua) / s),
		Peak:     report.Figure(sample.Peak(sample.Between(h.points, w.from, w.to))),
		Renewals: report.Figure(float64(renewed) / s), Failed: report.Figure(w.own.Counts[wire.Renewals][string(telemetry.RenewalError)]),
		Late: report.Figure(h.counts.Total(wire.Late) - h.warmed), Losses: report.Figure(h.lost), LossCauses: h.counts.Counts[wire.Losses], Goroutines: report.Figure(w.own.Goroutines),
		BatchP50: millis(&w.own, wire.Batch, .5), BatchP99: millis(&w.own, wire.Batch, .99), LagP99: millis(&w.own, wire.Lag, .99),
		Utilization: millis(&w.own, wire.Utilization, .999) / 1000,
		LatencyP50:  report.None(), LatencyP99: report.None(), LatencyP999: report.None(), LatencyErrors: report.None(),
		LatencyLow: report.None(), LatencyHigh: report.None(),
		Commands: make(map[string]int64),
	}
	if w.own.Counts == nil {
		r.Renewals, r.Failed, r.Late = report.None(), report.None(), report.None()
	} else {
		r.Own = report.Figure(float64(w.own.Total(wire.Calls)) / s)
	}
	for name, stat := range w.info.Commands {
		if name != "info" {
			r.Commands[name] = stat.Calls
		}
	}
	if w.foreground != nil {
		latency := func(q float64) report.Figure { return millis(w.foreground, wire.Latency, q) }
		r.LatencyP50, r.LatencyP99, r.LatencyP999 = latency(.5), latency(.99), latency(.999)
		doubt := doubt(.99, w.foreground.Time(wire.Latency).Count())
		r.LatencyLow, r.LatencyHigh = latency(.99-doubt), latency(min(.99+doubt, 1))
		r.LatencyErrors = report.Figure(w.foreground.Total(wire.Errors))
	}
	h.added(&r, w, idle)
	h.perLock(&r)
	return r
}

// added sets what this run used beyond the run without renewal.
func (h *holders) added(r *report.Row, w, idle *window) {
	s := w.seconds()
	redis, client := w.info.CPU.Seconds(), w.own.CPU
	in, out := float64(w.info.In), float64(w.info.Out)
	if idle != nil {
		share := s / idle.seconds()
		redis -= idle.info.CPU.Seconds() * share
		client -= idle.own.CPU * share
		in -= float64(idle.info.In) * share
		out -= float64(idle.info.Out) * share
	}
	r.RedisCPU = report.Figure(100 * redis / s)
	r.NetIn, r.NetOut = report.Figure(in/s), report.Figure(out/s)
	renewals := float64(w.renewed())
	if w.own.Counts == nil {
		renewals = float64(h.locks) * s / h.b.interval().Seconds() // a client that does not count is assumed to renew on time
	}
	r.RedisPerRenewal, r.ScriptPerRenewal, r.ClientPerRenewal = report.None(), report.None(), report.None()
	if renewals > 0 {
		scripts := (w.info.Commands["evalsha"].CPU + w.info.Commands["eval"].CPU).Seconds()
		// A difference of two large numbers may come out too small, even negative. It can't be less than what scripts took.
		r.RedisPerRenewal = report.Figure(1e6 * max(redis, scripts) / renewals)
		r.ScriptPerRenewal = report.Figure(1e6 * scripts / renewals)
		r.ClientPerRenewal = report.Figure(1e6 * client / renewals)
	}
}

// perLock sets what a lock adds to the clients' memory. What they need once, they have with their first lock.
func (h *holders) perLock(r *report.Row) {
	per := func(full, base int64) report.Figure {
		return report.Figure(float64(full-base) / float64(h.locks-h.b.clients))
	}
	r.GoroutinesPer = per(int64(h.full.Goroutines), int64(h.base.Goroutines))
	r.HeapPer, r.StackPer = per(h.full.Heap, h.base.Heap), per(h.full.Stacks, h.base.Stacks)
}

// timeline is the calls of each 100 ms since the first lock was acquired.
func (h *holders) timeline(to time.Time) []report.Figure {
	var figures []report.Figure
	for _, calls := range sample.Series(h.points, h.began, to) {
		figures = append(figures, report.Figure(math.Round(calls*10)/10))
	}
	return figures
}

func millis(r *wire.Reading, metric string, q float64) report.Figure {
	h := r.Time(metric)
	if h.Count() == 0 {
		return report.None()
	}
	return report.Figure(1000 * h.Quantile(q).Seconds())
}

// doubt is how far from q the rank of the true quantile of n values may be, in 95 of 100 cases: ranks are distributed binomially.
func doubt(q float64, n int64) float64 {
	const deviations = 1.96
	return deviations * math.Sqrt(q*(1-q)/float64(max(n, 1)))
}

// commands are those of the window, without the foreground's.
func (w *window) commands() sample.Commands {
	var foreground int64
	if w.foreground != nil {
		foreground = w.foreground.Total(wire.Sent)
	}
	return sample.Sort(w.info.Commands, foreground)
}

// renewed is how many locks were renewed.
func (w *window) renewed() int64 {
	return w.own.Counts[wire.Renewals][string(telemetry.RenewalRenewed)]
}

// Two counts of the same calls may differ by that much: a call that timed out may have been sent twice, or not at all.
const (
	agreeShare = 0.02 // of the renewals' calls
	agreeCalls = 2
)

// agree compares what Redis received with what the clients' own metrics say they sent, from before they were started until they have
// ended. At any other time a call may be in one of the two only. The greetings of connections are go-redis's, and in neither.
func (h *holders) agree() (received, own int64, ok bool) {
	c := sample.Sort(h.open.Since(h.start).Commands, 0)
	received, own = c.Scripts+c.PubSub, h.counts.Total(wire.Calls)
	renewals := h.counts.Counts[wire.Calls][string(telemetry.PurposeRenew)]
	return received, own, math.Abs(float64(received-own)) <= max(agreeCalls, agreeShare*float64(renewals))
}

// counts reports whether a mode's clients count their calls.
func counts(mode string) bool { return mode != wire.Redisson }

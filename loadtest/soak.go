package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/child"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
)

// soakEvery is the minimum time between two looks.
const soakEvery = 5 * time.Second

// By how much the number of goroutines of a process may vary, for any number of locks: calls in flight have goroutines,
// and so do the pairs of churn.
const (
	soakGoroutines  = 32
	churnGoroutines = 400
)

// soakAll holds very many locks for a long time, and looks at them repeatedly.
func (b *bench) soakAll(ctx context.Context, rep *report) error {
	if err := b.setTraffic(ctx, true); err != nil {
		return err
	}
	for _, locks := range b.locks {
		b.say("acquiring %d locks", locks)
		var s soaked
		h, err := b.hold(ctx, child.Batched, locks, b.soak, func(h *holders) error { return s.look(ctx, h) })
		if err != nil {
			return err
		}
		r := rep.row(child.Batched, locks)
		r.rounds, r.timeline = append(r.rounds, h.figures(s.whole, nil)), h.timeline(s.whole.to)
		rep.faults = append(rep.faults, h.faults()...)
		may := soakGoroutines
		if b.churn > 0 {
			may += churnGoroutines
		}
		rep.notes = append(rep.notes, fmt.Sprintf(
			"%d locks were acquired in %s, and held for %.0f s by %d process(es), with %d to %d goroutines (%d more are expected at most).",
			locks, h.took.Round(time.Millisecond), s.whole.seconds(), b.clients, s.fewest, s.most, may*b.clients))
		if s.interrupted != nil { // the report has what was measured until then
			return s.interrupted
		}
	}
	return nil
}

// soaked has the results of the looks during a soak.
type soaked struct {
	whole        *window // from the first look to the last
	fewest, most int     // of goroutines
	interrupted  error
}

// look looks repeatedly until the time is over or ctx ends. It merges all windows into one.
func (s *soaked) look(ctx context.Context, h *holders) error {
	start, end := h.open, time.Now().Add(h.b.soak)
	for left := h.b.soak; left > 0 && s.interrupted == nil; left = time.Until(end) {
		s.interrupted = wait(ctx, min(left, max(soakEvery, h.b.interval())))
		w, err := h.look(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		n := w.own.Goroutines
		h.b.say("%d lost, %.0f calls/s, lag p99 %v", h.counts.Total(child.Losses),
			float64(sample.Sort(w.info.Commands, 0).Scripts)/w.seconds(), w.own.Quantile(child.Lag, .99))
		if s.whole == nil {
			s.whole, s.fewest, s.most = w, n, n
			continue
		}
		s.whole.to, s.whole.info = w.to, h.open.Since(start)
		s.whole.own.Add(&w.own)
		if w.foreground != nil {
			s.whole.foreground.Add(w.foreground)
		}
		s.fewest, s.most = min(s.fewest, n), max(s.most, n)
	}
	return nil
}

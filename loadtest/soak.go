package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/child"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
)

// soakEvery is the least time from look to look.
const soakEvery = 5 * time.Second

// By how much the number of goroutines of a process may vary, whatever the number of locks: calls in flight have theirs, and so have the
// pairs of churn.
const (
	soakGoroutines  = 32
	churnGoroutines = 400
)

// soakAll holds very many locks for a while, and looks at them all the time.
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
		if s.interrupted != nil { // what was measured until then is reported
			return s.interrupted
		}
	}
	return nil
}

// soaked is what the looks at a soak saw.
type soaked struct {
	whole        *window // all of it
	fewest, most int     // goroutines
	interrupted  error
}

// look looks until the time is over, or it is interrupted. The windows add up to one.
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

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// soakEvery is from look to look, at the least.
const soakEvery = 5 * time.Second

// soak holds very many locks for a while, and looks at them all the time.
func soak(ctx context.Context, b *bench, rep *report.Report) error {
	if err := b.traffic(ctx, true); err != nil {
		return err
	}
	b.out.plan(time.Duration(len(b.locks)) * (b.acquireOver() + b.settleFor() + b.soak + overhead))
	for _, locks := range b.locks {
		if err := soakOne(ctx, b, rep, locks); err != nil {
			return err
		}
	}
	return nil
}

func soakOne(ctx context.Context, b *bench, rep *report.Report, locks int) error {
	b.out.say("taking %d locks", locks)
	h, err := b.start(ctx, wire.Batched, locks, 0)
	if err != nil {
		return err
	}
	b.out.pass(b.acquireOver())
	whole, fewest, most, err := h.soak(ctx)
	if whole == nil {
		_ = h.fleet.Close()
		return err
	}
	// Also when it was interrupted: so far it went.
	interrupted := err
	if err := h.finish(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	row := h.row(whole, nil)
	row.Stage, row.Timeline = "soak", h.timeline(whole.to)
	rep.Rows = append(rep.Rows, row)
	rep.Notes = append(rep.Notes, fmt.Sprintf("%d locks were taken in %s; they were held for %.0f s, by %d process(es), with %d to %d goroutines.",
		locks, h.took.Round(time.Millisecond), whole.seconds(), b.clients, fewest, most))
	var differ []string
	if received, own, ok := agree(whole); !ok {
		differ = append(differ, fmt.Sprintf("Redis %d, clients %d", received, own))
	}
	rep.Targets = append(rep.Targets, agreement(differ, []report.Row{row})...)
	b.out.pass(overhead)
	may := soakGoroutines * b.clients
	if b.churn > 0 {
		may += churnGoroutines * b.clients
	}
	rep.Targets = append(rep.Targets,
		atMost("lease utilization p99.9", row.Utilization, utilizationP, "%.3f"),
		atMost("bytes of heap per lock", row.HeapPer, heapLimit, "%.0f"),
		report.Target{
			What: "goroutines meanwhile", Want: fmt.Sprintf("the same, give or take %d", may), Got: fmt.Sprintf("%d to %d", fewest, most),
			Met: most-fewest <= may,
		})
	return interrupted
}

// By how much the number of goroutines may vary, whatever the number of locks: calls in flight have theirs, and so have the pairs of churn.
const (
	soakGoroutines  = 32
	churnGoroutines = 400
)

// soak looks until the time is over. The windows add up to one.
func (h *holders) soak(ctx context.Context) (whole *window, fewest, most int, err error) {
	if err := h.settle(ctx); err != nil {
		return nil, 0, 0, err
	}
	if err := h.begin(ctx); err != nil {
		return nil, 0, 0, err
	}
	start, end := h.open.info, time.Now().Add(h.b.soak)
	for left := time.Until(end); left > 0; left = time.Until(end) {
		waited := h.b.out.wait(ctx, min(left, max(soakEvery, h.b.interval())))
		w, err := h.end(context.WithoutCancel(ctx))
		if err != nil {
			return nil, 0, 0, err
		}
		n := w.own.Goroutines
		if whole == nil {
			whole, fewest, most = w, n, n
		} else {
			whole = whole.and(w)
		}
		whole.info = h.open.info.Since(start)
		fewest, most = min(fewest, n), max(most, n)
		h.b.out.say("%s", h.state(w))
		if waited != nil {
			return whole, fewest, most, waited
		}
	}
	return whole, fewest, most, nil
}

// state is a line about one window.
func (h *holders) state(w *window) string {
	c := sample.Sort(w.info.Commands, 0)
	return fmt.Sprintf("%d held, %d lost, %.0f calls/s, lag p99 %.0f ms", w.own.Held, total(h.losses), float64(c.Scripts)/w.seconds(),
		float64(millis(&w.own, wire.Lag, .99)))
}

// and is two windows, one after the other.
func (w *window) and(next *window) *window {
	both := *w
	both.to = next.to
	both.own.Add(&next.own)
	both.own.Goroutines, both.own.Held = next.own.Goroutines, next.own.Held // of now
	if w.foreground != nil && next.foreground != nil {
		both.foreground.Add(next.foreground)
	}
	return &both
}

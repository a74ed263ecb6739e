package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// soakEvery is the least time from look to look.
const soakEvery = 5 * time.Second

// By how much the number of goroutines may vary, whatever the number of locks: calls in flight have theirs, and so have the pairs of churn.
const (
	soakGoroutines  = 32
	churnGoroutines = 400
)

// soak holds very many locks for a while, and looks at them all the time.
func soak(ctx context.Context, b *bench, rep *report.Report) error {
	if err := b.traffic(ctx, true); err != nil {
		return err
	}
	b.out.plan(time.Duration(len(b.locks)) * b.planned(b.soak))
	for _, locks := range b.locks {
		if err := soakOne(ctx, b, rep, locks); err != nil {
			return err
		}
	}
	return nil
}

func soakOne(ctx context.Context, b *bench, rep *report.Report, locks int) error {
	b.out.say("acquiring %d locks", locks)
	var whole *window
	var fewest, most int
	var interrupted error // what was measured until then is reported
	h, err := b.hold(ctx, wire.Batched, locks, b.soak, func(h *holders) (err error) {
		whole, fewest, most, interrupted, err = h.soak(ctx)
		return err
	})
	if err != nil {
		return err
	}
	row := h.row(whole, nil)
	row.Stage, row.Timeline = "soak", h.timeline(whole.to)
	rep.Rows = append(rep.Rows, row)
	rep.Notes = append(rep.Notes, fmt.Sprintf("%d locks were acquired in %s; they were held for %.0f s, by %d process(es), with %d to %d goroutines.",
		locks, h.took.Round(time.Millisecond), whole.seconds(), b.clients, fewest, most))
	var differ []string
	if received, own, ok := h.agree(); !ok {
		differ = append(differ, fmt.Sprintf("Redis %d, clients %d", received, own))
	}
	rep.Targets = append(rep.Targets, agreement(differ, []report.Row{row})...)
	may := soakGoroutines * b.clients
	if b.churn > 0 {
		may += churnGoroutines * b.clients
	}
	rep.Targets = append(rep.Targets,
		atMost("renewals late", row.Late, 0, "%.0f"),
		atMost("lease utilization p99.9", row.Utilization, utilizationP, "%.3f"),
		atMost("bytes of heap per lock", row.HeapPer, heapLimit, "%.0f"),
		report.Target{
			What: "goroutines meanwhile", Want: fmt.Sprintf("the same, give or take %d", may), Got: fmt.Sprintf("%d to %d", fewest, most),
			Met: most-fewest <= may,
		})
	return interrupted
}

// soak looks until the time is over, or it is interrupted. The windows add up to one.
func (h *holders) soak(ctx context.Context) (whole *window, fewest, most int, interrupted, err error) {
	start, end := h.open, time.Now().Add(h.b.soak)
	for left := h.b.soak; left > 0 && interrupted == nil; left = time.Until(end) {
		interrupted = h.b.out.wait(ctx, min(left, max(soakEvery, h.b.interval())))
		w, err := h.look(context.WithoutCancel(ctx))
		if err != nil {
			return nil, 0, 0, nil, err
		}
		n := w.own.Goroutines
		h.b.out.say("%d held, %d lost, %.0f calls/s, lag p99 %.0f ms", w.own.Held, h.counts.Total(wire.Losses),
			float64(sample.Sort(w.info.Commands, 0).Scripts)/w.seconds(), float64(millis(&w.own, wire.Lag, .99)))
		if whole == nil {
			whole, fewest, most = w, n, n
		} else {
			whole.extend(w)
		}
		whole.info = h.open.Since(start)
		fewest, most = min(fewest, n), max(most, n)
	}
	return whole, fewest, most, interrupted, nil
}

// extend adds the window that follows.
func (w *window) extend(next *window) {
	w.to = next.to
	w.own.Add(&next.own)
	w.own.Goroutines, w.own.Held = next.own.Goroutines, next.own.Held // of now
	if w.foreground != nil && next.foreground != nil {
		w.foreground.Add(next.foreground)
	}
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"

	"github.com/lockdog/lockdog/lock"
)

// restTime is how long a worker leaves the lock to others before it asks again.
const restTime = 500 * time.Millisecond

// worker writes a report again and again. The workers of all instances with the same number want the same lock, so that one
// works and the others wait for their turn.
type worker struct {
	locks *lock.Client
	log   *slog.Logger
	hold  time.Duration
}

func (w *worker) run(ctx context.Context, n int) {
	report := fmt.Sprintf("report:%d", n)
	for {
		w.report(ctx, report)
		if sleep(ctx, restTime) != nil {
			return
		}
	}
}

// report waits for the lock, and holds it for as long as writing takes. No lease is that long: lockdog renews it meanwhile.
func (w *worker) report(ctx context.Context, name string) {
	ctx, span := otel.Tracer("orders").Start(ctx, "write report")
	defer span.End()
	err := w.locks.Mutex(name).Do(ctx, func(ctx context.Context, l *lock.Lease) error {
		w.log.InfoContext(ctx, "report begun", "report", name, "token", l.Token())
		return sleep(ctx, w.hold)
	})
	if err != nil && ctx.Err() == nil { // else we were told to stop
		span.SetStatus(codes.Error, err.Error())
		w.log.ErrorContext(ctx, "report not written", "report", name, "error", err)
	}
}

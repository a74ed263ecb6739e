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

// restTime is how long a worker pauses before it acquires the lock again, so that others can.
const restTime = 500 * time.Millisecond

// worker writes a report repeatedly. Workers with the same number in different instances use the same lock: one
// works and the others wait.
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

// report waits for the lock, and holds it while it writes. By default that takes longer than a lease: lockdog renews
// the lease.
func (w *worker) report(ctx context.Context, name string) {
	ctx, span := otel.Tracer("orders").Start(ctx, "write report")
	defer span.End()
	err := w.locks.Mutex(name).Do(ctx, func(ctx context.Context, l *lock.Lease) error {
		w.log.InfoContext(ctx, "report begun", "report", name, "token", l.Token())
		return sleep(ctx, w.hold)
	})
	if err != nil && ctx.Err() == nil { // otherwise the service is stopping
		span.SetStatus(codes.Error, err.Error())
		w.log.ErrorContext(ctx, "report not written", "report", name, "error", err)
	}
}

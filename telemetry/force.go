package telemetry

import (
	"context"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Force is the telemetry of one call to ForceUnlock. It belongs to one goroutine at a time.
type Force struct{ operation }

// StartForce begins a forced unlock. The ctx that it returns carries the span, for the Redis calls.
func (r *Recorder) StartForce(ctx context.Context, l *Lock) (context.Context, Force) {
	l.role.startCounting(ctx)
	f := Force{operation{lock: l, op: OpForceUnlock}}
	ctx = f.begin(ctx, l.role.forceSpan)
	return ctx, f
}

// End ends the forced unlock. It must be called once. held says whether the lock was held, owners by whom; by is the
// client that called, and caller the place in the program. t is the type of err, if there is one.
func (f *Force) End(held bool, owners []string, by, caller string, t ErrorType, err error) {
	owner := printable(strings.Join(owners, ", "))
	outcome := forceForced
	switch {
	case err != nil:
		outcome = operationError
	case !held:
		outcome = forceFree
	}
	if outcome == forceForced {
		f.lock.role.forced.inc(f.ctx, "")
		if f.lock.rec.logs(LogForced) {
			f.lock.log(LogForced, trace.SpanContextFromContext(f.ctx), nil,
				slog.String("owner", owner), slog.String("by", by), slog.String("caller", caller))
		}
	}
	if f.recording() {
		attrs := make([]attribute.KeyValue, 0, 4) // so many that finish can add one without an allocation
		attrs = append(attrs, KeyOutcome.String(string(outcome)), KeyForcedBy.String(by))
		if owner != "" {
			attrs = append(attrs, KeyOwner.String(owner))
		}
		f.Failed(t)
		f.finish(outcome, err, attrs...)
	}
	f.endSpan()
}

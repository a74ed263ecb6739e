package telemetry

import (
	"context"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Force is the telemetry of one call to ForceUnlock. It belongs to one goroutine at a time.
type Force struct {
	lock *Lock
	ctx  context.Context
	span trace.Span // nil with a no-op tracer
}

// StartForce begins a forced unlock. The ctx that it returns carries the span, for the Redis calls.
func (r *Recorder) StartForce(ctx context.Context, l *Lock) (context.Context, Force) {
	l.role.appear(ctx)
	ctx, span := r.tracing.start(ctx, l.role.forceSpan)
	return ctx, Force{lock: l, ctx: ctx, span: span}
}

// End ends the forced unlock. It must be called once. held says whether the lock was held, owners by whom; by is the
// client that called, and caller the place in the program. t is the type of err, if there is one.
func (f *Force) End(held bool, owners []string, by, caller string, t ErrorType, err error) {
	r, g := f.lock.rec, f.lock.role.group
	owner := printable(strings.Join(owners, ", "))
	outcome := forceForced
	switch {
	case err != nil:
		outcome = forceError
	case !held:
		outcome = forceFree
	}
	if outcome == forceForced {
		r.metrics.forced.Add(f.ctx, 1, g.add...)
		if r.logs(LogForced) {
			f.lock.log(LogForced, trace.SpanContextFromContext(f.ctx), nil,
				slog.String("owner", owner), slog.String("by", by), slog.String("caller", caller))
		}
	}
	if f.span == nil {
		return
	}
	if f.span.IsRecording() {
		attrs := make([]attribute.KeyValue, 0, len(SpanForce.Attributes))
		attrs = append(attrs, KeyName.String(f.lock.name), KeyKind.String(f.lock.kind), KeyGroup.String(g.name),
			KeyOutcome.String(string(outcome)), KeyForcedBy.String(by))
		if owner != "" {
			attrs = append(attrs, KeyOwner.String(owner))
		}
		if err != nil {
			attrs = append(attrs, KeyErrorType.String(string(typeOr(t))))
			fail(f.span, err)
		}
		f.span.SetAttributes(attrs...)
	}
	f.span.End()
}

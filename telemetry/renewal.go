package telemetry

import (
	"cmp"
	"log/slog"
	"math/bits"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// RenewalEvent is the outcome of one attempt to renew one lease.
type RenewalEvent struct {
	Start, End time.Time // of the attempt
	Outcome    Outcome   // of the attempt
	Err        error     // with RenewalError, and with RenewalTaken if the key holds something that is no lock
	ErrType    ErrorType // with RenewalError
	Attempt    int       // 1; more for a retry of the same renewal

	Remaining time.Duration // from the attempt to the deadline that the lease then had
	Lag       time.Duration // how late the attempt was made
	Elapsed   time.Duration // from the last confirmed request to the outcome

	BatchSize int         // leases in the call
	Node      string      // the server
	Batch     *RenewBatch // the call; may be nil
	Burst     *Burst      // limits log records; may be nil
}

const (
	// lateAt: a renewal with a higher utilization is late.
	lateAt = 0.8
	// slowRenewal: a renewal that takes longer has a span with RenewalSpansThinned.
	slowRenewal = time.Second
	// allThinned is the number of renewals that have a span with RenewalSpansThinned before it leaves some out.
	allThinned = 8
	// renewalsPerTrace is the number of renew spans after which a hold begins a new trace: an hour with the default
	// options. Backends limit the size of a trace.
	renewalsPerTrace = 360
)

// Renewal records the outcome of an attempt to renew. After RenewalMissing and RenewalTaken, Lost or End must follow.
func (h *Hold) Renewal(ev *RenewalEvent) {
	if h.lock == nil {
		return
	}
	r, role, ctx := h.lock.rec, h.lock.role, h.here()
	ordinal := h.ordinal.Load() + 1
	used := ratio(ev.Elapsed, h.lease)
	role.renewals.inc(ctx, string(ev.Outcome))
	role.recordUtilization(ctx, used)
	role.held.settle(ctx)

	recovered := false
	switch ev.Outcome {
	case RenewalRenewed:
		h.ordinal.Store(ordinal)
		h.confirmed.Store(int64(ev.Start.Sub(h.start)))
		recovered = h.setFailing(false)
	case RenewalError:
		h.setFailing(true)
	}
	sc := h.traceRenewal(ev, ordinal, used)
	switch {
	case ev.Outcome == RenewalError && r.logs(LogFail) && ev.Burst.admit(LogFail):
		h.log(LogFail, sc, ev.Err, append(ev.logged(), slog.String("error_type", string(cmp.Or(ev.ErrType, ErrorOther))))...)
	case recovered && r.logs(LogBack) && ev.Burst.admit(LogBack):
		h.log(LogBack, sc, nil, ev.logged()...)
	}
}

func (ev *RenewalEvent) logged() []slog.Attr {
	return []slog.Attr{
		slog.Int("attempt", ev.Attempt), seconds("remaining", ev.Remaining), slog.String("node", ev.Node),
	}
}

// setFailing notes whether the last renewal failed, and reports whether that has changed.
func (h *Hold) setFailing(failing bool) bool {
	if h.failing.Load() == failing {
		return false
	}
	g := h.lock.role.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.setFailing(h, failing)
}

// traceRenewal makes the span of a renewal, unless the trace isn't recorded, or the policy leaves the renewal out. It
// returns the span context of log records.
func (h *Hold) traceRenewal(ev *RenewalEvent, ordinal uint32, used float64) trace.SpanContext {
	t, sc := h.trail.Load(), h.logged()
	if t == nil {
		return sc
	}
	if t.spans >= renewalsPerTrace && ordinal >= t.retryAt {
		t = h.nextTrail(t, ev.Start, ordinal)
	}
	if !wanted(h.lock.spans, t.refused, ev, ordinal, used) {
		return sc
	}
	opts := make([]trace.SpanStartOption, 0, 2)
	opts = append(opts, trace.WithTimestamp(ev.Start))
	if batch := ev.Batch.spanContext(); batch.IsSampled() {
		opts = append(opts, trace.WithLinks(linkTo(batch, linkBatch)))
	}
	_, span := h.lock.rec.tracing.start(t.ctx, h.lock.role.renewSpan, opts...)
	if span == nil || !span.IsRecording() {
		return sc
	}
	t.spans++
	attrs := make([]attribute.KeyValue, 0, len(SpanRenew.Attributes))
	attrs = append(attrs,
		KeyName.String(h.lock.name), KeyGroup.String(h.lock.Group()),
		KeyOrdinal.Int64(int64(ordinal)), KeyAttempt.Int(ev.Attempt),
		KeyRemaining.Float64(ev.Remaining.Seconds()), KeyUtilization.Float64(used), KeyLag.Float64(ev.Lag.Seconds()),
		KeyBatchSize.Int(ev.BatchSize), KeyNode.String(ev.Node), KeyOutcome.String(string(ev.Outcome)))
	switch ev.Outcome {
	case RenewalRenewed:
	case RenewalError:
		attrs = append(attrs, KeyErrorType.String(string(cmp.Or(ev.ErrType, ErrorOther))))
	default:
		attrs = append(attrs, KeyErrorType.String(string(ev.Outcome)))
	}
	span.SetAttributes(attrs...)
	if ev.Outcome != RenewalRenewed {
		fail(span, ev.Err)
	}
	span.End(trace.WithTimestamp(ev.End))
	return span.SpanContext()
}

// ShowsRenewal reports whether the next renewal gets a span if it succeeds, and is neither late nor slow. It doesn't
// know of a trace that the sampler declined: then fewer renewals have spans.
func (h *Hold) ShowsRenewal() bool {
	if h.trail.Load() == nil {
		return false
	}
	inTime := RenewalEvent{Outcome: RenewalRenewed}
	return wanted(h.lock.spans, false, &inTime, h.ordinal.Load()+1, 0)
}

// nextTrail starts a new trace, which links to the grant, and returns it; if the sampler declines that, it returns t.
func (h *Hold) nextTrail(t *trail, now time.Time, ordinal uint32) *trail {
	next := h.newTrail(h.firstTrail.ctx, now, trace.WithNewRoot(), trace.WithLinks(linkTo(h.firstTrail.held, linkHeld)))
	if next == nil {
		t.refused, t.retryAt = true, ordinal+renewalsPerTrace
		return t
	}
	h.trail.Store(next)
	return next
}

// wanted reports whether a renewal gets a span.
func wanted(policy RenewalSpans, refused bool, ev *RenewalEvent, ordinal uint32, used float64) bool {
	switch {
	case policy == RenewalSpansOff:
		return false
	case ev.Outcome != RenewalRenewed:
		return true
	case policy == RenewalSpansFailures:
		return false
	case policy == RenewalSpansThinned || refused:
		return doubled(ordinal) || used > lateAt || ev.End.Sub(ev.Start) > slowRenewal
	}
	return true
}

// doubled reports whether a successful renewal that is neither late nor slow has a span with RenewalSpansThinned.
func doubled(ordinal uint32) bool { return ordinal <= allThinned || bits.OnesCount32(ordinal) == 1 }

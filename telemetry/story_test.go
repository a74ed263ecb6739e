package telemetry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/telemetry"
)

// TestStory follows one lock from a contended acquire to its release and checks every span against every
// other.
func TestStory(t *testing.T) {
	b := newBench(t)
	root := trace.SpanContextFromContext(b.caller)
	const blocker = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

	actx, a := b.StartAcquire(b.caller, &b.lock, ttl)
	acquireSC := trace.SpanContextFromContext(actx)
	a.Attempt()
	a.BlockedBy("other:9", blocker)
	a.WaitStart()
	a.Wakeup(telemetry.WakeupMessage)
	a.WaitEnd()
	a.Attempt()
	a.Takeover(telemetry.TakeoverExpired)
	if got, want := a.Traceparent(), "00-"+acquireSC.TraceID().String()+"-"+acquireSC.SpanID().String()+"-01"; got != want {
		t.Errorf("traceparent %q, want %q", got, want)
	}
	var h telemetry.Hold
	a.Grant(&h, "app:1", 7)
	granted := time.Now()

	bctx, batch := b.StartBatch(context.Background(), "127.0.0.1:6379", 2, 5*time.Millisecond, true)
	batchSC := trace.SpanContextFromContext(bctx)
	batch.End(1, 0, 0, 1, telemetry.ErrorTimeout, nil)
	ev := renewed(granted)
	ev.Batch, ev.Lag, ev.BatchSize = &batch, 5*time.Millisecond, 2
	h.Renewal(ev)
	h.Renewal(&telemetry.RenewalEvent{
		Start: granted.Add(time.Second), End: granted.Add(2 * time.Second), Outcome: telemetry.RenewalError,
		Err: errors.New("connection refused"), ErrType: telemetry.ErrorNetwork, Attempt: 2, Elapsed: 25 * time.Second,
	})
	rctx, rel := b.StartRelease(b.caller, &h)
	releaseSC := trace.SpanContextFromContext(rctx)
	rel.End(telemetry.ReleaseReleased, true, nil)
	h.End(telemetry.EndReleased)

	acquire, held, hold := b.one("acquire orders"), b.one("held orders"), b.one("hold orders")
	release, batchSpan := b.one("release orders"), b.one("renew batch")
	renewals := b.named("renew orders")
	if len(renewals) != 2 {
		t.Fatalf("%d renew spans", len(renewals))
	}

	parents := []struct {
		span   tracetest.SpanStub
		parent trace.SpanContext
	}{
		{acquire, root},
		{held, acquireSC},
		{renewals[0], held.SpanContext},
		{renewals[1], held.SpanContext},
		{hold, held.SpanContext},
		{release, root},
		{batchSpan, trace.SpanContext{}},
	}
	for _, p := range parents {
		if p.span.Parent.SpanID() != p.parent.SpanID() {
			t.Errorf("%s: parent %s, want %s", p.span.Name, p.span.Parent.SpanID(), p.parent.SpanID())
		}
		if p.parent.IsValid() && p.span.SpanContext.TraceID() != root.TraceID() {
			t.Errorf("%s is in another trace", p.span.Name)
		}
		kind := trace.SpanKindInternal
		if p.span.Name == "renew batch" {
			kind = trace.SpanKindClient
		}
		if p.span.SpanKind != kind {
			t.Errorf("%s is %s", p.span.Name, p.span.SpanKind)
		}
		if s := p.span.InstrumentationScope; s.Name != telemetry.ScopeName || s.Version != telemetry.Version || s.SchemaURL != semconv.SchemaURL {
			t.Errorf("%s: scope %+v", p.span.Name, s)
		}
	}
	if acquire.SpanContext.SpanID() != acquireSC.SpanID() || release.SpanContext.SpanID() != releaseSC.SpanID() {
		t.Error("the ctx given out does not carry the span")
	}
	if batchSpan.SpanContext.TraceID() == root.TraceID() || batchSpan.SpanContext.SpanID() != batchSC.SpanID() {
		t.Error("the batch is not a trace of its own")
	}
	if !h.SpanContext().Equal(held.SpanContext) {
		t.Error("the hold does not know its held span")
	}

	// Times: held is a moment within acquire, hold starts there.
	if held.EndTime.Sub(held.StartTime) != time.Nanosecond || held.StartTime.Before(acquire.StartTime) || held.StartTime.After(acquire.EndTime) {
		t.Errorf("held %v-%v is not a moment of acquire %v-%v", held.StartTime, held.EndTime, acquire.StartTime, acquire.EndTime)
	}
	if !hold.StartTime.Equal(held.StartTime) || hold.EndTime.Before(release.EndTime) {
		t.Error("hold does not reach from the grant to the end")
	}
	if !renewals[0].StartTime.Equal(granted) || renewals[0].EndTime.Sub(granted) != 3*time.Millisecond {
		t.Error("the renewal is not where its event says")
	}

	wantAttrs(t, acquire, map[attribute.Key]string{
		"lockdog.name": "orders:42", "lockdog.kind": "mutex", "lockdog.group": "orders", "lockdog.outcome": "acquired",
		"lockdog.attempts": "2", "lockdog.wakeups": "1", "lockdog.lease.duration": "30", "lockdog.owner": "app:1",
		"lockdog.token": "7", "lockdog.takeover": "expired", "lockdog.blocked_by": "other:9",
	})
	wantAttrs(t, held, map[attribute.Key]string{
		"lockdog.name": "orders:42", "lockdog.kind": "mutex", "lockdog.group": "orders", "lockdog.owner": "app:1",
		"lockdog.token": "7", "lockdog.lease.duration": "30",
	})
	wantAttrs(t, renewals[0], map[attribute.Key]string{
		"lockdog.name": "orders:42", "lockdog.group": "orders", "lockdog.renewal.ordinal": "1", "lockdog.renewal.attempt": "1",
		"lockdog.lease.remaining": "20", "lockdog.lease.utilization": "0.3333333333333333", "lockdog.renewal.lag": "0.005",
		"lockdog.batch.size": "2", "lockdog.node": "127.0.0.1:6379", "lockdog.outcome": "renewed",
	})
	failed := attrs(renewals[1])
	if failed["lockdog.outcome"] != "error" || failed["error.type"] != "network" || failed["lockdog.renewal.ordinal"] != "2" ||
		failed["lockdog.renewal.attempt"] != "2" || renewals[1].Status.Code != codes.Error || renewals[1].Status.Description != "connection refused" {
		t.Errorf("failed renewal: %v %v", failed, renewals[1].Status)
	}
	wantAttrs(t, batchSpan, map[attribute.Key]string{
		"lockdog.node": "127.0.0.1:6379", "lockdog.batch.size": "2", "lockdog.renewal.lag": "0.005", "lockdog.outcome": "partial",
		"lockdog.batch.renewed": "1", "lockdog.batch.missing": "0", "lockdog.batch.taken": "0", "lockdog.batch.failed": "1",
		"error.type": "timeout", "db.system.name": "redis", "db.operation.name": "EVALSHA", "server.address": "127.0.0.1", "server.port": "6379", "db.operation.batch.size": "2",
	})
	wantAttrs(t, release, map[attribute.Key]string{
		"lockdog.name": "orders:42", "lockdog.kind": "mutex", "lockdog.group": "orders", "lockdog.owner": "app:1",
		"lockdog.token": "7", "lockdog.outcome": "released", "lockdog.release.unconfirmed": "true",
	})
	wantAttrs(t, hold, map[attribute.Key]string{
		"lockdog.name": "orders:42", "lockdog.kind": "mutex", "lockdog.group": "orders", "lockdog.owner": "app:1",
		"lockdog.token": "7", "lockdog.end": "released",
	})

	blockerSC, _ := telemetry.ParseTraceparent(blocker)
	wantLink(t, acquire, blockerSC, "blocked_by")
	wantLink(t, renewals[0], batchSC, "batch")
	wantLink(t, release, held.SpanContext, "held")
	for _, s := range []tracetest.SpanStub{held, renewals[1], batchSpan, hold} {
		if len(s.Links) != 0 {
			t.Errorf("%s has links", s.Name)
		}
	}
	for _, s := range []tracetest.SpanStub{acquire, held, renewals[0], release, hold} {
		if s.Status.Code != codes.Unset {
			t.Errorf("%s: status %v", s.Name, s.Status)
		}
	}
}

func wantAttrs(t *testing.T, s tracetest.SpanStub, want map[attribute.Key]string) {
	t.Helper()
	got := attrs(s)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %s = %q, want %q", s.Name, k, got[k], v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: unexpected %s = %q", s.Name, k, v)
		}
	}
}

func wantLink(t *testing.T, s tracetest.SpanStub, to trace.SpanContext, kind string) {
	t.Helper()
	if len(s.Links) != 1 {
		t.Fatalf("%s: %d links", s.Name, len(s.Links))
	}
	l := s.Links[0]
	if l.SpanContext.TraceID() != to.TraceID() || l.SpanContext.SpanID() != to.SpanID() ||
		!slices.Contains(l.Attributes, telemetry.KeyLink.String(kind)) {
		t.Errorf("%s: link %+v, want to %v as %s", s.Name, l, to, kind)
	}
}

func TestLostAndCanceled(t *testing.T) {
	b := newBench(t)
	h := b.grant()
	held := b.one("held orders")
	h.Warn(90 * time.Second)
	warned := b.records.all(t, telemetry.LogHeld)
	if len(warned) != 1 || warned[0]["name"] != "orders:42" || warned[0]["owner"] != "app:1" || warned[0]["token"] != 7.0 || warned[0]["held"] != 90.0 ||
		warned[0]["trace_id"] != held.SpanContext.TraceID().String() {
		t.Errorf("records %v", warned)
	}
	h.Lost(telemetry.LossTaken, errors.New("taken by other:9"), nil)
	h.End(telemetry.EndLost)
	lost := b.one("lost orders")
	if lost.Parent.SpanID() != held.SpanContext.SpanID() || lost.Status.Code != codes.Error || lost.Status.Description != "taken by other:9" ||
		attrs(lost)["lockdog.cause"] != "taken" {
		t.Errorf("lost: %+v", lost)
	}
	if got := attrs(b.one("hold orders"))["lockdog.end"]; got != "lost" {
		t.Errorf("hold ended %s", got)
	}
	recs := b.records.all(t, telemetry.LogLost)
	if len(recs) != 1 {
		t.Fatalf("%d records", len(recs))
	}
	for key, want := range map[string]any{
		"name": "orders:42", "group": "orders", "owner": "app:1", "token": 7.0, "cause": "taken", "error": "taken by other:9",
		"trace_id": lost.SpanContext.TraceID().String(), "span_id": lost.SpanContext.SpanID().String(),
	} {
		if recs[0][key] != want {
			t.Errorf("log %s = %v, want %v", key, recs[0][key], want)
		}
	}
	b.want(1, telemetry.MetricLosses, "lockdog.cause=taken", "lockdog.group=orders")

	b.spans.Reset()
	for reason, kind := range map[telemetry.CancelReason]telemetry.Log{
		telemetry.CancelContext: telemetry.LogEnd, telemetry.CancelClosed: telemetry.LogEnd,
		telemetry.CancelMaxHold: telemetry.LogCut, telemetry.CancelHeartbeat: telemetry.LogCut,
	} {
		h := b.grant()
		h.Canceled(reason, context.Canceled)
		h.End(telemetry.EndCanceled)
		b.want(1, telemetry.MetricCancellations, "lockdog.group=orders", "lockdog.reason="+string(reason))
		cancel := b.one("cancel orders")
		if cancel.Parent.SpanID() != h.SpanContext().SpanID() || cancel.Status.Code != codes.Unset || attrs(cancel)["lockdog.reason"] != string(reason) {
			t.Errorf("cancel: %+v", cancel)
		}
		if recs := b.records.all(t, kind); len(recs) != 1 || recs[0]["reason"] != string(reason) || recs[0]["trace_id"] == nil {
			t.Errorf("%s: records %v", reason, recs)
		}
		b.spans.Reset()
	}
}

func TestAcquireFails(t *testing.T) {
	b := newBench(t)
	for outcome, isError := range map[telemetry.Outcome]bool{
		telemetry.AcquireHeld: false, telemetry.AcquireTimeout: false, telemetry.AcquireCanceled: false, telemetry.AcquireError: true,
	} {
		b.spans.Reset()
		_, a := b.StartAcquire(b.caller, &b.lock, ttl)
		a.Attempt()
		a.Error(telemetry.ErrorPool)
		a.WaitStart()
		a.Fail(outcome, errors.New("boom\xff"))
		a.Fail(outcome, nil)                 // ended already
		a.Grant(new(telemetry.Hold), "x", 1) // as above
		a.Reenter(new(telemetry.Hold))       // as above
		a.WaitStart()                        // as above
		a.BlockedBy("late", "")              // as above
		b.want(0, telemetry.MetricWaiting, "lockdog.group=orders")
		b.want(1, telemetry.MetricAcquisitions, "lockdog.group=orders", "lockdog.outcome="+string(outcome))
		s := b.one("acquire orders")
		if attrs(s)["lockdog.outcome"] != string(outcome) || (s.Status.Code == codes.Error) != isError {
			t.Errorf("%s: %v %v", outcome, attrs(s), s.Status)
		}
		if got := attrs(s)["error.type"]; (got == "pool") != isError {
			t.Errorf("%s: error.type %q", outcome, got)
		}
		if isError && s.Status.Description != "boom\uFFFD" {
			t.Errorf("status %q", s.Status.Description)
		}
	}
	b.want(4, telemetry.MetricErrors, "error.type=pool", "lockdog.operation=acquire")
	b.want(4, telemetry.MetricAcquireDuration, "lockdog.group=orders", "lockdog.outcome=failed")
	b.want(0, telemetry.MetricHeld, "lockdog.group=orders")
}

func TestReenter(t *testing.T) {
	b := newBench(t)
	h := b.grant()
	_, a := b.StartAcquire(b.caller, &b.lock, ttl)
	a.Reenter(h)
	spans := b.named("acquire orders")
	if len(spans) != 2 || attrs(spans[1])["lockdog.outcome"] != "reentered" || attrs(spans[1])["lockdog.token"] != "7" {
		t.Errorf("spans %v", spans)
	}
	b.one("held orders")
	b.want(1, telemetry.MetricHeld, "lockdog.group=orders")
	b.want(1, telemetry.MetricAcquireDuration, "lockdog.group=orders", "lockdog.outcome=acquired")
	b.want(1, telemetry.MetricAcquisitions, "lockdog.group=orders", "lockdog.outcome=reentered")
}

// A release by a caller without a span must not become a root that points into another trace.
func TestReleaseWithoutCaller(t *testing.T) {
	b := newBench(t)
	h := b.grant()
	_, rel := b.StartRelease(context.Background(), h)
	rel.Error(telemetry.ErrorTimeout)
	rel.End(telemetry.ReleaseError, false, errors.New("i/o timeout"))
	rel.End(telemetry.ReleaseReleased, false, nil) // ended already
	s := b.one("release orders")
	if s.Parent.SpanID() != h.SpanContext().SpanID() || s.Status.Code != codes.Error || attrs(s)["error.type"] != "timeout" {
		t.Errorf("release %+v", s)
	}
	b.want(1, telemetry.MetricReleases, "lockdog.group=orders", "lockdog.outcome=error")
	b.want(0, telemetry.MetricReleases, "lockdog.group=orders", "lockdog.outcome=released")
	b.want(1, telemetry.MetricErrors, "error.type=timeout", "lockdog.operation=release")
}

// Nothing is said of a grant that never was, and nothing panics.
func TestZeroHold(t *testing.T) {
	b := newBench(t)
	var h telemetry.Hold
	ctx, rel := b.StartRelease(b.caller, &h)
	if ctx != b.caller {
		t.Error("another ctx")
	}
	rel.Error(telemetry.ErrorOther)
	rel.End(telemetry.ReleaseError, false, nil)
	h.Renewal(renewed(time.Now()))
	h.Lost(telemetry.LossMissing, nil, nil)
	h.Canceled(telemetry.CancelClosed, nil)
	h.Warn(time.Hour)
	h.End(telemetry.EndClosed)
	if h.SpanContext().IsValid() || len(b.spans.GetSpans()) != 0 {
		t.Error("a hold out of nothing")
	}
	if len(b.metrics()) != 0 {
		t.Error("metrics out of nothing")
	}
}

func TestBlockedBy(t *testing.T) {
	b := newBench(t)
	_, a := b.StartAcquire(b.caller, &b.lock, ttl)
	tp := func(i byte, flags string) string {
		return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033" + string([]byte{'a' + i/10, '0' + i%10}) + "-" + flags
	}
	for i := range byte(10) {
		a.BlockedBy("holder:"+string('0'+i), tp(i, "01"))
		a.BlockedBy("holder:"+string('0'+i), tp(i, "01"))
	}
	a.BlockedBy("holder:8", tp(8, "01"))                    // seen before
	a.BlockedBy("unsampled", tp(50, "00"))                  // its trace was not kept
	a.BlockedBy("garbage", "00-nonsense")                   // not a traceparent
	a.BlockedBy("long\xff"+string(make([]byte, 1000)), "x") // not bearable as it is
	a.Fail(telemetry.AcquireTimeout, nil)
	s := b.one("acquire orders")
	if len(s.Links) != 8 {
		t.Fatalf("%d links, want 8", len(s.Links))
	}
	for i, l := range s.Links {
		want, _ := telemetry.ParseTraceparent(tp(byte(i+2), "01"))
		if l.SpanContext.SpanID() != want.SpanID() || !l.SpanContext.IsRemote() {
			t.Errorf("link %d to %v, want %v: the latest eight", i, l.SpanContext, want)
		}
	}
	if got := attrs(s)["lockdog.blocked_by"]; len(got) > 300 || got[:7] != "long\uFFFD" {
		t.Errorf("blocked by %q", got)
	}
	if s.SpanContext.TraceID() != trace.SpanContextFromContext(b.caller).TraceID() {
		t.Error("a holder became a parent")
	}
}

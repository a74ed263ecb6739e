package telemetry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/telemetry"
)

// TestStory follows one lock from a contended acquire to its release, for what depends on times and on a partial batch.
// Package lock's TestStory has every span, attribute, parent and link.
func TestStory(t *testing.T) {
	b := newBench(t)
	actx, a := b.StartAcquire(b.caller, &b.lock, ttl)
	a.Attempt()
	a.WaitStart()
	a.Wakeup(telemetry.WakeupMessage)
	a.WaitEnd()
	a.Attempt()
	a.Takeover(telemetry.TakeoverExpired)
	sc := trace.SpanContextFromContext(actx)
	if got, want := a.Traceparent(), "00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-01"; got != want {
		t.Errorf("traceparent %q, want %q", got, want)
	}
	var h telemetry.Hold
	a.Grant(&h, "app:1", 7)
	granted := time.Now()

	_, batch := b.StartBatch(context.Background(), "127.0.0.1:6379", 2, 5*time.Millisecond, true)
	batch.End(1, 0, 0, 1, telemetry.ErrorTimeout, nil)
	ev := renewed(granted)
	ev.Batch, ev.Lag, ev.BatchSize = &batch, 5*time.Millisecond, 2
	h.Renewal(ev)
	_, rel := b.StartRelease(b.caller, &h)
	rel.End(telemetry.ReleaseReleased, true, nil)
	h.End(telemetry.EndReleased)

	for _, s := range b.spans.GetSpans() {
		scope := s.InstrumentationScope
		if scope.Name != telemetry.ScopeName || scope.Version != telemetry.Version ||
			scope.SchemaURL != semconv.SchemaURL {
			t.Errorf("%s: scope %+v", s.Name, scope)
		}
		if s.Status.Code != codes.Unset {
			t.Errorf("%s: status %v", s.Name, s.Status)
		}
	}
	acquire, release := b.one("acquire orders"), b.one("release orders")
	held, hold := b.one("held orders"), b.one("hold orders")
	if !h.SpanContext().Equal(held.SpanContext) || held.Parent.SpanID() != sc.SpanID() {
		t.Error("the hold does not know its held span, or that is not within the acquire")
	}
	// Held is a moment within acquire, hold starts there.
	if held.EndTime.Sub(held.StartTime) != time.Nanosecond || held.StartTime.Before(acquire.StartTime) || held.StartTime.After(acquire.EndTime) {
		t.Errorf("held %v-%v is not a moment of acquire %v-%v", held.StartTime, held.EndTime, acquire.StartTime, acquire.EndTime)
	}
	if !hold.StartTime.Equal(held.StartTime) || hold.EndTime.Before(release.EndTime) {
		t.Error("hold does not reach from the grant to the end")
	}
	renewal := b.one("renew orders")
	if !renewal.StartTime.Equal(granted) || renewal.EndTime.Sub(granted) != 3*time.Millisecond {
		t.Error("the renewal is not where its event says")
	}
	wantIn(t, "acquire", attrs(acquire), map[attribute.Key]string{
		"lockdog.attempts": "2", "lockdog.wakeups": "1", "lockdog.lease.duration": "30", "lockdog.takeover": "expired",
	})
	wantIn(t, "renew", attrs(renewal), map[attribute.Key]string{
		"lockdog.lease.remaining": "20", "lockdog.lease.utilization": "0.3333333333333333",
		"lockdog.renewal.lag": "0.005", "lockdog.batch.size": "2",
	})
	wantIn(t, "renew batch", attrs(b.one("renew batch")), map[attribute.Key]string{
		"lockdog.batch.size": "2", "lockdog.renewal.lag": "0.005", "lockdog.outcome": "partial",
		"lockdog.batch.renewed": "1", "lockdog.batch.failed": "1", "error.type": "timeout",
		"server.address": "127.0.0.1", "server.port": "6379", "db.operation.batch.size": "2",
	})
	wantIn(t, "release", attrs(release), map[attribute.Key]string{
		"lockdog.outcome": "released", "lockdog.release.unconfirmed": "true",
	})
}

func TestLostAndCanceled(t *testing.T) {
	b := newBench(t)
	h := b.grant()
	held := b.one("held orders").SpanContext
	h.Warn(90 * time.Second)
	wantIn(t, "held", b.record(telemetry.LogHeld), map[string]any{
		"name": "orders:42", "owner": "app:1", "token": 7.0, "held": 90.0, "trace_id": held.TraceID().String(),
	})
	h.Lost(telemetry.LossTaken, errors.New("taken by other:9"), nil)
	h.End(telemetry.EndLost)
	lost := b.one("lost orders")
	if lost.Parent.SpanID() != held.SpanID() || lost.Status.Code != codes.Error ||
		lost.Status.Description != "taken by other:9" {
		t.Errorf("lost: %+v", lost)
	}
	wantIn(t, "lost", attrs(lost), map[attribute.Key]string{"lockdog.cause": "taken"})
	wantIn(t, "hold", attrs(b.one("hold orders")), map[attribute.Key]string{"lockdog.end": "lost"})
	wantIn(t, "lost", b.record(telemetry.LogLost), map[string]any{
		"name": "orders:42", "group": "orders", "owner": "app:1", "token": 7.0, "cause": "taken", "error": "taken by other:9",
		"trace_id": lost.SpanContext.TraceID().String(), "span_id": lost.SpanContext.SpanID().String(),
	})
	b.want(1, telemetry.MetricLosses, "lockdog.cause=taken", "lockdog.group=orders")

	for reason, kind := range map[telemetry.CancelReason]telemetry.Log{
		telemetry.CancelContext: telemetry.LogEnd, telemetry.CancelClosed: telemetry.LogEnd,
		telemetry.CancelMaxHold: telemetry.LogCut, telemetry.CancelHeartbeat: telemetry.LogCut,
	} {
		b.spans.Reset()
		h := b.grant()
		h.Canceled(reason, context.Canceled)
		h.End(telemetry.EndCanceled)
		b.want(1, telemetry.MetricCancellations, "lockdog.group=orders", "lockdog.reason="+string(reason))
		cancel := b.one("cancel orders")
		if cancel.Parent.SpanID() != h.SpanContext().SpanID() || cancel.Status.Code != codes.Unset || attrs(cancel)["lockdog.reason"] != string(reason) {
			t.Errorf("cancel: %+v", cancel)
		}
		wantIn(t, "cancel", b.record(kind), map[string]any{
			"reason": string(reason), "trace_id": held.TraceID().String(),
		})
	}
}

// A member that can't be unlocked by force fails the call: no span of the composite tells so.
func TestForceOfAMemberFails(t *testing.T) {
	b := newBench(t)
	member := b.lock.Member(func() string { return "node:1" })
	_, f := b.StartForce(b.caller, &member)
	f.End(false, nil, "operator", "main.main (main.go:1)", telemetry.ErrorNetwork, errBoom)
	s := b.one("force unlock member orders")
	if s.Status.Code != codes.Error || attrs(s)["lockdog.node"] != "node:1" || attrs(s)["error.type"] != "network" {
		t.Errorf("%v %v", attrs(s), s.Status)
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

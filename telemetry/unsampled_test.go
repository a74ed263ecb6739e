package telemetry_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/telemetry"
)

// keeper samples what a span starts with: the losses and cancellations of mutexes of one group.
type keeper struct{}

func (keeper) Description() string { return "keeper" }

func (keeper) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	has := func(kv attribute.KeyValue) bool { return slices.Contains(p.Attributes, kv) }
	keeps := has(telemetry.KeyGroup.String("orders")) && has(telemetry.KeyKind.String("mutex")) &&
		(has(telemetry.KeyCause.String("unreachable")) || has(telemetry.KeyReason.String("max_hold")))
	if keeps {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

// A lock that isn't sampled shows its end all the same, if the sampler wants that: as the root of a trace that links to the acquire, which
// the record and the exemplar of the loss lead to.
func TestEndOfAnUnsampledLock(t *testing.T) {
	b := newBench(t, withSampler(sdktrace.ParentBased(keeper{})))
	actx, a := b.StartAcquire(b.caller, &b.lock, ttl)
	var h telemetry.Hold
	a.Grant(&h, "app:1", 7)
	h.Canceled(telemetry.CancelMaxHold, errBoom)
	cut := b.record(telemetry.LogCut)
	h.Lost(telemetry.LossUnreachable, errBoom, nil)
	lost := b.record(telemetry.LogLost)
	h.Canceled(telemetry.CancelContext, nil) // the sampler doesn't want these
	h.Lost(telemetry.LossStalled, nil, nil)
	h.End(telemetry.EndLost)
	if n := len(b.spans.GetSpans()); n != 2 {
		t.Errorf("%d spans, want 2", n)
	}
	for name, record := range map[string]map[string]any{"cancel orders": cut, "lost orders": lost} {
		s := b.one(name)
		if s.Parent.IsValid() || s.SpanContext.TraceID() == trace.SpanContextFromContext(b.caller).TraceID() {
			t.Errorf("%s is no root of its own", name)
		}
		wantLink(t, s, trace.SpanContextFromContext(actx), "held")
		wantIn(t, name, attrs(s), map[attribute.Key]string{
			"lockdog.name": "orders:42", "lockdog.owner": "app:1", "lockdog.token": "7",
		})
		wantIn(t, name, record, map[string]any{"trace_id": s.SpanContext.TraceID().String()})
	}
	for key, p := range points(b.metrics()[telemetry.MetricLosses.Name]) {
		if want := strings.Contains(key, "unreachable"); (p.exemplars > 0) != want {
			t.Errorf("%s has %d exemplars", key, p.exemplars)
		}
	}
}

// The span of an end starts with its cause or reason, the group and the kind also for a sampled lock, so that one
// sampler works for both.
func TestEndStartsWithWhy(t *testing.T) {
	started := onStart{}
	b := newBench(t, started.watch)
	h := b.grant()
	h.Lost(telemetry.LossTaken, nil, nil)
	h.Canceled(telemetry.CancelClosed, nil)
	for name, why := range map[string]attribute.KeyValue{
		"lost orders": telemetry.KeyCause.String("taken"), "cancel orders": telemetry.KeyReason.String("closed"),
	} {
		for _, want := range []attribute.KeyValue{why, telemetry.KeyGroup.String("orders"), telemetry.KeyKind.String("mutex")} {
			if !slices.Contains(started[name], want) {
				t.Errorf("%s starts with %v, without %v", name, started[name], want)
			}
		}
	}
}

// onStart is a processor that notes what spans start with, by their names.
type onStart map[string][]attribute.KeyValue

func (o onStart) watch(_ *telemetry.Config, opts *[]sdktrace.TracerProviderOption) {
	*opts = append(*opts, sdktrace.WithSpanProcessor(o))
}

func (o onStart) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) { o[s.Name()] = s.Attributes() }
func (onStart) OnEnd(sdktrace.ReadOnlySpan)                           {}
func (onStart) Shutdown(context.Context) error                        { return nil }
func (onStart) ForceFlush(context.Context) error                      { return nil }

// A call in which no lease is shown has a span only if a renewal fails, and what runs in its ctx starts no trace.
func TestQuietBatch(t *testing.T) {
	started := onStart{}
	b := newBench(t, started.watch)
	start := func() telemetry.RenewBatch {
		ctx, batch := b.StartBatch(context.Background(), "redis:6380", 1, time.Millisecond, false)
		if _, span := b.tp.Tracer("redisotel").Start(ctx, "evalsha"); span.IsRecording() {
			t.Error("the call starts a trace")
		}
		return batch
	}
	batch := start()
	batch.End(1, 0, 0, 0, "", nil)
	if n := len(b.spans.GetSpans()); n != 0 {
		t.Errorf("%d spans of a call that went well", n)
	}
	batch = start()
	batch.End(0, 0, 0, 1, telemetry.ErrorLoading, errBoom)
	s := b.one("renew batch")
	if s.SpanKind != trace.SpanKindClient || s.Status.Code != codes.Error || s.Parent.IsValid() || !s.EndTime.After(s.StartTime) {
		t.Errorf("%+v", s)
	}
	wantIn(t, s.Name, attrs(s), map[attribute.Key]string{
		"lockdog.node": "redis:6380", "lockdog.renewal.lag": "0.001", "lockdog.outcome": "error",
		"lockdog.batch.renewed": "0", "lockdog.batch.failed": "1", "error.type": "loading",
		"server.address": "redis", "server.port": "6380",
	})
	if got := started["renew batch"]; !slices.Contains(got, telemetry.KeyErrorType.String("loading")) {
		t.Errorf("it starts with %v: no sampler could keep what failed", got)
	}
	ev := failed()
	ev.Batch = &batch
	b.grant().Renewal(ev)
	wantLink(t, b.one("renew orders"), s.SpanContext, "batch")
}

package telemetry_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/telemetry"
)

// one runs a cycle with parts of its own.
func one(ctx context.Context, r *telemetry.Recorder, l *telemetry.Lock) {
	cycle(ctx, r, &parts{lock: *l})
}

// parts are what package lock allocates for a lock, a grant and a renewal call anyway.
type parts struct {
	lock  telemetry.Lock
	hold  telemetry.Hold
	batch telemetry.RenewBatch
}

// cycle is all that a lock records from its acquire to its end, with one renewal.
func cycle(ctx context.Context, r *telemetry.Recorder, s *parts) {
	h := &s.hold
	actx, a := r.StartAcquire(ctx, &s.lock, ttl)
	a.Attempt()
	_ = a.Traceparent()
	a.BlockedBy("other:1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	a.WaitStart()
	a.Wakeup(telemetry.WakeupLocal)
	a.WaitEnd()
	a.Grant(h, "app:1", 7)
	r.WatchdogLeases(1)
	r.Command(telemetry.PurposeAcquire)
	_, s.batch = r.StartBatch(ctx, "n", 1, 0, h.ShowsRenewal())
	now := time.Now()
	h.Renewal(&telemetry.RenewalEvent{Start: now, End: now, Outcome: telemetry.RenewalRenewed, Attempt: 1, Elapsed: 10 * time.Second, Batch: &s.batch})
	s.batch.End(1, 0, 0, 0, "", nil)
	r.Error(actx, telemetry.OpRenew, telemetry.ErrorTimeout)
	_, rel := r.StartRelease(ctx, h)
	rel.End(telemetry.ReleaseReleased, false, nil)
	r.WatchdogLeases(-1)
	h.End(telemetry.EndReleased)
}

// allocations per cycle, besides those of package lock.
func allocations(ctx context.Context, r *telemetry.Recorder) float64 {
	const runs = 200
	all := make([]parts, runs+1)
	return testing.AllocsPerRun(runs, func() {
		s := &all[0]
		all = all[1:]
		s.lock = r.Lock("orders:42", "mutex", "", 0) // a Mutex is made for each use
		cycle(ctx, r, s)
	})
}

func TestNoopAllocatesNothing(t *testing.T) {
	for name, cfg := range map[string]telemetry.Config{
		"no-op":              {TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()},
		"uncomparable no-op": {TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: odd{}},
	} {
		r, err := telemetry.NewRecorder(cfg)
		if err != nil {
			t.Fatal(err)
		}
		// A caller that is traced by something else must not make us trace.
		ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
		}))
		for _, ctx := range []context.Context{context.Background(), ctx} {
			if n := allocations(ctx, r); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
		r.Close()
	}
}

// childUnset is run by TestGlobals.
func childUnset(t *testing.T) {
	r, _ := newGlobal(t, nil)
	if n := allocations(context.Background(), r); n != 0 {
		t.Errorf("%v allocations with unset globals", n)
	}
}

func BenchmarkCycle(b *testing.B) {
	none := telemetry.Config{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()}
	metrics := none
	metrics.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	with := func(o ...sdktrace.TracerProviderOption) telemetry.Config {
		cfg := metrics
		cfg.TracerProvider = sdktrace.NewTracerProvider(append(o, sdktrace.WithSpanProcessor(sink{}))...)
		return cfg
	}
	unsampled := with(sdktrace.WithSampler(sdktrace.NeverSample()))
	sampled := with()
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	b.Cleanup(collector.Close)
	exporter, err := otlptracehttp.New(b.Context(), otlptracehttp.WithEndpointURL(collector.URL))
	if err != nil {
		b.Fatal(err)
	}
	// Blocking: the loop makes spans faster than they are sent, and none is to be left out.
	sent := with(sdktrace.WithBatcher(exporter, sdktrace.WithBlocking()))
	b.Cleanup(func() { _ = sent.TracerProvider.(*sdktrace.TracerProvider).Shutdown(context.Background()) })
	for _, c := range []struct {
		name string
		cfg  telemetry.Config
	}{{"noop", none}, {"metrics", metrics}, {"unsampled", unsampled}, {"sampled", sampled}, {"sent", sent}} {
		c.cfg.Logger = slog.New(slog.DiscardHandler)
		b.Run(c.name, func(b *testing.B) {
			r, err := telemetry.NewRecorder(c.cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			l := r.Lock("orders:42", "mutex", "", 0)
			ctx := context.Background()
			b.Run("TryLock+Release", func(b *testing.B) {
				b.ReportAllocs()
				s := &parts{}
				defer reportCPU(b)()
				for b.Loop() {
					*s = parts{lock: l}
					_, a := r.StartAcquire(ctx, &s.lock, ttl)
					a.Attempt()
					_ = a.Traceparent()
					a.Grant(&s.hold, "app:1", 7)
					_, rel := r.StartRelease(ctx, &s.hold)
					rel.End(telemetry.ReleaseReleased, false, nil)
					s.hold.End(telemetry.EndReleased)
				}
			})
			b.Run("Renewal", func(b *testing.B) {
				b.ReportAllocs()
				s := &parts{lock: l}
				_, a := r.StartAcquire(ctx, &s.lock, ttl)
				a.Grant(&s.hold, "app:1", 7)
				defer s.hold.End(telemetry.EndReleased)
				_, s.batch = r.StartBatch(ctx, "n", 1, 0, s.hold.ShowsRenewal())
				ev := renewed(time.Now())
				ev.Batch = &s.batch
				defer reportCPU(b)()
				for b.Loop() {
					s.hold.Renewal(ev)
				}
			})
		})
	}
}

// reportCPU reports what the whole process used, the exporter and what collects from it included.
func reportCPU(b *testing.B) func() {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	began := used()
	return func() { b.ReportMetric(float64(used()-began)/float64(b.N), "cpu-ns/op") }
}

// sink is an exporter that costs nothing.
type sink struct{}

func (sink) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (sink) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (sink) Shutdown(context.Context) error                  { return nil }
func (sink) ForceFlush(context.Context) error                { return nil }

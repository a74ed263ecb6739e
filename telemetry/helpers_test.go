package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/telemetry/internal/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl        = story.TTL
	otherGroup = "_other"
)

var errBoom = errors.New("boom")

var renewed = story.Renewed

// bench is a recorder on SDK providers of its own.
type bench struct {
	*telemetry.Recorder
	t       testing.TB
	spans   *tracetest.InMemoryExporter
	tp      *sdktrace.TracerProvider
	mp      *sdkmetric.MeterProvider
	reader  *sdkmetric.ManualReader
	records *records
	caller  context.Context // with a sampled span
	lock    telemetry.Lock
}

func newBench(t testing.TB, change ...func(*telemetry.Config, *[]sdktrace.TracerProviderOption)) *bench {
	t.Helper()
	b := &bench{t: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader(), records: &records{}}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithSyncer(b.spans)}
	b.mp = sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader))
	cfg := telemetry.Config{MeterProvider: b.mp, Logger: slog.New(slog.NewJSONHandler(b.records, nil))}
	for _, c := range change {
		c(&cfg, &opts)
	}
	b.tp = sdktrace.NewTracerProvider(opts...)
	cfg.TracerProvider = b.tp
	r, err := telemetry.NewRecorder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		_ = b.tp.Shutdown(context.Background())
		_ = b.mp.Shutdown(context.Background())
	})
	b.Recorder = r
	ctx, span := b.tp.Tracer("test").Start(context.Background(), "caller")
	b.caller = ctx
	t.Cleanup(func() { span.End() })
	b.lock = r.Lock("orders:42", "mutex", "", 0)
	return b
}

// grant acquires the bench's lock.
func (b *bench) grant() *telemetry.Hold {
	h := new(telemetry.Hold)
	_, a := b.StartAcquire(b.caller, &b.lock, ttl)
	a.Grant(h, "app:1", 7)
	return h
}

// granted acquires a lock without a caller's span.
func granted(r *telemetry.Recorder, l *telemetry.Lock) *telemetry.Hold {
	h := new(telemetry.Hold)
	_, a := r.StartAcquire(context.Background(), l, ttl)
	a.Grant(h, "app:1", 7)
	return h
}

// failed is a renewal that fails, after a third of the lease.
func failed() *telemetry.RenewalEvent {
	ev := renewed(time.Now())
	ev.Outcome = telemetry.RenewalError
	return ev
}

func (b *bench) named(name string) tracetest.SpanStubs {
	var found tracetest.SpanStubs
	for _, s := range b.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// one gives the only span of that name.
func (b *bench) one(name string) tracetest.SpanStub {
	b.t.Helper()
	found := b.named(name)
	if len(found) != 1 {
		b.t.Fatalf("%d spans %q, want 1", len(found), name)
	}
	return found[0]
}

// record gives the only record of a kind, and forgets every record.
func (b *bench) record(l telemetry.Log) map[string]any {
	b.t.Helper()
	found := b.records.all(b.t, l)
	if len(found) != 1 {
		b.t.Fatalf("%d records %q, want 1", len(found), l.Message)
	}
	return found[0]
}

// wantIn checks those attributes of a span, or values of a record, that are in want.
func wantIn[K ~string, V comparable](t *testing.T, what string, got, want map[K]V) {
	t.Helper()
	for key, v := range want {
		if got[key] != v {
			t.Errorf("%s: %s = %v, want %v", what, key, got[key], v)
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

func withSampler(s sdktrace.Sampler) func(*telemetry.Config, *[]sdktrace.TracerProviderOption) {
	return func(_ *telemetry.Config, o *[]sdktrace.TracerProviderOption) {
		*o = append(*o, sdktrace.WithSampler(s))
	}
}

func attrs(s tracetest.SpanStub) map[attribute.Key]string {
	m := map[attribute.Key]string{}
	for _, a := range s.Attributes {
		m[a.Key] = a.Value.String()
	}
	return m
}

// metrics collects and gives every metric by name.
func (b *bench) metrics() map[string]metricdata.Metrics {
	b.t.Helper()
	var rm metricdata.ResourceMetrics
	if err := b.reader.Collect(context.Background(), &rm); err != nil {
		b.t.Fatal(err)
	}
	all := map[string]metricdata.Metrics{}
	for _, sm := range rm.ScopeMetrics {
		if sm.Scope.Name != telemetry.ScopeName || sm.Scope.Version != telemetry.Version || sm.Scope.SchemaURL != semconv.SchemaURL {
			b.t.Errorf("metrics of scope %+v", sm.Scope)
		}
		for _, m := range sm.Metrics {
			all[m.Name] = m
		}
	}
	return all
}

// point is one value of one metric: the sum, the gauge, or of a histogram the count.
type point struct {
	value     float64
	sum       float64 // histogram
	exemplars int
	attrs     attribute.Set
}

func points(m metricdata.Metrics) map[string]point {
	all := map[string]point{}
	add := func(set attribute.Set, p point) {
		p.attrs = set
		all[set.Encoded(attribute.DefaultEncoder())] = p
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, point{value: float64(p.Value), exemplars: len(p.Exemplars)})
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, point{value: p.Value})
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, point{value: float64(p.Count), sum: p.Sum, exemplars: len(p.Exemplars)})
		}
	case metricdata.Histogram[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, point{value: float64(p.Count), sum: float64(p.Sum), exemplars: len(p.Exemplars)})
		}
	}
	return all
}

// value gives the value of one series of a metric, and whether there is one. labels are "key=value", sorted.
func (b *bench) value(m telemetry.Metric, labels ...string) (float64, bool) {
	b.t.Helper()
	p, ok := points(b.metrics()[m.Name])[strings.Join(labels, ",")]
	return p.value, ok
}

// want checks the value of one series.
func (b *bench) want(want float64, m telemetry.Metric, labels ...string) {
	b.t.Helper()
	if got, ok := b.value(m, labels...); !ok || got != want {
		b.t.Errorf("%s%v = %v (there: %v), want %v", m.Name, labels, got, ok, want)
	}
}

// wants is want for a metric whose only label is the group of the bench's lock.
func (b *bench) wants(m telemetry.Metric) func(want float64) {
	return func(want float64) {
		b.t.Helper()
		b.want(want, m, "lockdog.group=orders")
	}
}

// records keeps what a JSON handler writes.
type records struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

// all gives the records of a kind and forgets every record.
func (r *records) all(t testing.TB, l telemetry.Log) []map[string]any {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []map[string]any
	for line := range bytes.Lines(r.buf.Bytes()) {
		var rec map[string]any
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatal(err)
		}
		if rec["msg"] == l.Message && rec["level"] == l.Level.String() {
			found = append(found, rec)
		}
	}
	r.buf.Reset()
	return found
}

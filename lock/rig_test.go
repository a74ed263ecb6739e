package lock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What the tests of the promises share: clients that see all of their telemetry, and ears on the wire.

// scope is OpenTelemetry SDK providers and a logger for one test, with what came of them.
type scope struct {
	spans   *tracetest.InMemoryExporter
	tracer  *sdktrace.TracerProvider
	meter   *sdkmetric.MeterProvider
	reader  *sdkmetric.ManualReader
	log     *slog.Logger
	unended openSpans

	mu   sync.Mutex
	text bytes.Buffer // JSON, one record a line
}

func newScope(t testing.TB) *scope {
	t.Helper()
	s := &scope{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	s.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans), sdktrace.WithSpanProcessor(&s.unended))
	s.meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	s.log = slog.New(slog.NewJSONHandler(s, nil))
	t.Cleanup(func() {
		_ = s.tracer.Shutdown(context.Background())
		_ = s.meter.Shutdown(context.Background())
	})
	return s
}

// openSpans counts the spans that have begun and not ended.
type openSpans struct{ atomic.Int64 }

func (o *openSpans) OnStart(context.Context, sdktrace.ReadWriteSpan) { o.Add(1) }
func (o *openSpans) OnEnd(sdktrace.ReadOnlySpan)                     { o.Add(-1) }
func (*openSpans) Shutdown(context.Context) error                    { return nil }
func (*openSpans) ForceFlush(context.Context) error                  { return nil }

// Write implements io.Writer for the logger.
func (s *scope) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// output is the log so far.
func (s *scope) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// records are the log records of one kind so far.
func (s *scope) records(t testing.TB, kind telemetry.Log) []map[string]any {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []map[string]any
	for line := range bytes.Lines(s.text.Bytes()) {
		var r map[string]any
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r["msg"] == kind.Message && r["level"] == kind.Level.String() {
			found = append(found, r)
		}
	}
	return found
}

// series are the values of a metric by their attributes, "key=value,...", sorted: of a histogram the counts.
func (s *scope) series(t testing.TB, m telemetry.Metric) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	add := func(set attribute.Set, v float64) { values[set.Encoded(attribute.DefaultEncoder())] += v }
	for _, sm := range all.ScopeMetrics {
		for _, got := range sm.Metrics {
			if got.Name != m.Name {
				continue
			}
			switch d := got.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			}
		}
	}
	return values
}

// sum adds up the series of a metric that have all these labels, each "key=value".
func (s *scope) sum(t testing.TB, m telemetry.Metric, labels ...string) float64 {
	t.Helper()
	total := 0.0
	for set, v := range s.series(t, m) {
		matches := true
		for _, l := range labels {
			matches = matches && strings.Contains(","+set+",", ","+l+",")
		}
		if matches {
			total += v
		}
	}
	return total
}

// sent is how many commands a client says it has sent for a purpose.
func (s *scope) sent(t testing.TB, p telemetry.Purpose) int {
	t.Helper()
	return int(s.sum(t, telemetry.MetricCommands, "lockdog.purpose="+string(p)))
}

// spansNamed are the ended spans of a name, in the order they ended.
func (s *scope) spansNamed(name string) tracetest.SpanStubs {
	var found tracetest.SpanStubs
	for _, span := range s.spans.GetSpans() {
		if span.Name == name {
			found = append(found, span)
		}
	}
	return found
}

func attrsOf(s tracetest.SpanStub) map[attribute.Key]string {
	m := make(map[attribute.Key]string)
	for _, kv := range s.Attributes {
		m[kv.Key] = kv.Value.String()
	}
	return m
}

// open returns a client that reports to the scope. The test's end closes it, and abandons what it still holds.
func (s *scope) open(t testing.TB, rdb redis.UniversalClient, opts ...lock.Option) *lock.Client {
	t.Helper()
	opts = append([]lock.Option{
		lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter), lock.WithLogger(s.log),
	}, opts...)
	c, err := lock.New(rdb, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(c) })
	return c
}

// closeSoon closes a client without patience for what it still holds.
func closeSoon(c *lock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = c.Close(ctx) // says how many leases the test left
}

// wireTap sees every request that goes through a proxy, and gives the proxy its rule.
type wireTap struct {
	proxy *redistest.Proxy
	sha   map[string]string // by script

	mu   sync.Mutex
	rule redistest.Rule
	seen []string // requests
}

func listenOn(t testing.TB, p *redistest.Proxy) *wireTap {
	t.Helper()
	e := &wireTap{proxy: p, sha: scriptSHAs()}
	p.SetRule(func(c redistest.Chunk) redistest.Verdict {
		e.mu.Lock()
		defer e.mu.Unlock()
		if c.Dir == redistest.Up {
			e.seen = append(e.seen, string(c.Data))
		}
		if e.rule == nil {
			return redistest.Pass
		}
		return e.rule(c)
	})
	return e
}

// set replaces the rule of the proxy; nil lets all pass.
func (e *wireTap) set(r redistest.Rule) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rule = r
}

// script is a condition for rules: a call of that script about the lock, by its digest.
func (e *wireTap) script(name, about string) func(redistest.Chunk) bool {
	sha := []byte(e.sha[name])
	return func(c redistest.Chunk) bool {
		return bytes.Contains(c.Data, sha) && bytes.Contains(c.Data, []byte(about))
	}
}

// heard counts the requests in which a script was called, about the lock, by its digest.
func (e *wireTap) heard(script, about string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, request := range e.seen {
		if strings.Contains(request, about) {
			n += strings.Count(request, e.sha[script])
		}
	}
	return n
}

// loadScripts gives a server these scripts: then each call of theirs is one request. A fake takes a while to read all that there are.
func loadScripts(t *testing.T, rdb *redis.Client, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, name, rdb.ScriptLoad(context.Background(), lock.Scripts[name].Source).Err())
	}
}

// scriptSHAs are the digests of the scripts by which Redis knows them.
func scriptSHAs() map[string]string {
	shas := make(map[string]string)
	for name, script := range lock.Scripts {
		shas[name] = script.SHA
	}
	return shas
}

// throughProxy returns a client that reaches a server through a proxy, and the wireTap of that proxy.
func throughProxy(t testing.TB, s interface {
	Addr() string
	Client(testing.TB, ...func(*redis.Options)) *redis.Client
}, change ...func(*redis.Options),
) (*redis.Client, *wireTap) {
	t.Helper()
	p := redistest.NewProxy(t, s.Addr())
	e := listenOn(t, p)
	change = append(change, func(o *redis.Options) { o.Addr = p.Addr() })
	return s.Client(t, change...), e
}

// answerWithin sets how long a go-redis client waits for an answer.
func answerWithin(d time.Duration) func(*redis.Options) {
	return func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = d, d }
}

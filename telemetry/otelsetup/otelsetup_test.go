package otelsetup_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// TestGlobals: after Start a program that uses the globals is observed.
func TestGlobals(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	spans := tracetest.NewInMemoryExporter()
	p, log := start(t, nil, func(c *otelsetup.Config) { c.KeepGlobals, c.TraceExporter = false, spans })
	ctx, span := otel.Tracer("test").Start(t.Context(), "span")
	slog.InfoContext(ctx, "hello")
	counter, _ := otel.Meter("test").Int64Counter("jobs")
	counter.Add(ctx, 2)
	otel.Handle(errors.New("exporter is unhappy"))
	header := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, header)
	span.End()
	text := scrape(t, p.Handler(), "")
	if err := p.TracerProvider.(*sdktrace.TracerProvider).ForceFlush(ctx); err != nil {
		t.Fatal(err)
	}
	if got := spans.GetSpans(); len(got) != 1 || got[0].Name != "span" {
		t.Errorf("spans %v", got)
	}
	for _, want := range []string{"hello trace_id=" + span.SpanContext().TraceID().String(), "telemetry error error=\"exporter is unhappy\""} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log)
		}
	}
	if !strings.Contains(text, "\njobs_total 2\n") || !strings.Contains(header["traceparent"], span.SpanContext().TraceID().String()) {
		t.Errorf("metrics or propagation are missing: %v", header)
	}
}

func resourceOf(t *testing.T, p *otelsetup.Providers) map[string]string {
	t.Helper()
	_, span := p.TracerProvider.Tracer("test").Start(trace.ContextWithRemoteSpanContext(t.Context(), sampledParent), "span")
	defer span.End()
	all := map[string]string{}
	for _, a := range span.(sdktrace.ReadOnlySpan).Resource().Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

var sampledParent = trace.NewSpanContext(trace.SpanContextConfig{
	TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true,
})

func TestResource(t *testing.T) {
	shard := func(c *otelsetup.Config) { c.Attributes = []attribute.KeyValue{attribute.String("shard", "7")} }
	p, _ := start(t, nil, shard)
	res := resourceOf(t, p)
	if res["service.name"] != "orders" || res["service.version"] != "1.2.3" || res["shard"] != "7" || res["telemetry.sdk.language"] != "go" {
		t.Errorf("resource %v", res)
	}
	p, _ = start(t, map[string]string{"OTEL_SERVICE_NAME": "billing", "OTEL_RESOURCE_ATTRIBUTES": "shard=8"}, shard)
	if res := resourceOf(t, p); res["service.name"] != "billing" || res["shard"] != "8" {
		t.Errorf("the environment does not win: %v", res)
	}
	p, _ = start(t, nil, func(c *otelsetup.Config) { c.ServiceName = "" })
	if res := resourceOf(t, p); !strings.HasPrefix(res["service.name"], "unknown_service:") {
		t.Errorf("no default name: %v", res)
	}
	p, log := start(t, map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "nonsense"}, nil)
	if res := resourceOf(t, p); res["service.name"] != "orders" || !strings.Contains(log.String(), "resource is incomplete") {
		t.Errorf("misspelt attributes: %v\n%s", res, log)
	}
}

// TestExport: where spans go, and by which protocol. ADDR stands for the collector's address.
func TestExport(t *testing.T) {
	const (
		proto   = "/v1/traces application/x-protobuf"
		metrics = "/v1/metrics application/x-protobuf"
	)
	type vars = map[string]string
	for _, c := range []struct {
		name               string
		endpoint, protocol string
		env                vars
		want               []string
	}{
		{"host and port", "ADDR", "", nil, []string{proto}},
		{"URL", "http://ADDR/", "", nil, []string{proto}},
		{"URL with the path", "http://ADDR/v1/traces", "", nil, []string{proto}},
		{"URL with a prefix", "http://ADDR/otlp", "", nil, []string{"/otlp/v1/traces application/x-protobuf"}},
		{"JSON", "ADDR", "http/json", nil, []string{"/v1/traces application/json"}},
		{"gRPC", "ADDR", "grpc", vars{"OTEL_METRICS_EXPORTER": "otlp"}, []string{"grpc", "grpc metrics"}},
		{
			"traces endpoint by env", "", "",
			vars{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://ADDR/v1/traces"},
			[]string{proto},
		},
		{
			"gRPC by env", "", "",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://ADDR", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			[]string{"grpc"},
		},
		{
			"env names the protocol of a given endpoint", "ADDR", "",
			vars{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
			[]string{"grpc"},
		},
		{
			"Config wins over env", "ADDR", "http/protobuf",
			vars{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			[]string{proto},
		},
		{"metrics", "http://ADDR/v1/traces", "", vars{"OTEL_METRICS_EXPORTER": "otlp"}, []string{proto, metrics}},
		{
			"metrics by env", "", "", vars{
				"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "otlp",
				"OTEL_EXPORTER_OTLP_ENDPOINT": "http://ADDR",
			}, []string{metrics},
		},
		{
			"metrics by gRPC by env", "", "", vars{
				"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://ADDR",
				"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc",
			}, []string{"grpc metrics"},
		},
		{"none", "ADDR", "", vars{"OTEL_TRACES_EXPORTER": "none"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := newHTTPCollector(t)
			if strings.HasPrefix(strings.Join(c.want, ""), "grpc") {
				server = newGRPCCollector(t)
			}
			env := vars{}
			for k, v := range c.env {
				env[k] = strings.ReplaceAll(v, "ADDR", server.addr)
			}
			p, _ := start(t, env, func(cfg *otelsetup.Config) {
				cfg.Endpoint, cfg.Protocol = strings.ReplaceAll(c.endpoint, "ADDR", server.addr), c.protocol
			})
			emit(t, p)
			if got := server.seen(); !slices.Equal(got, c.want) {
				t.Errorf("collector got %q, want %q", got, c.want)
			}
		})
	}
}

// TestMetricsExporters: who gets the metrics, with the resource that the program and its environment state.
func TestMetricsExporters(t *testing.T) {
	for exporters, want := range map[string]struct{ scraped, sent bool }{
		"": {scraped: true}, "prometheus": {scraped: true}, "otlp": {sent: true}, "prometheus, otlp": {true, true},
		"none": {},
	} {
		server := newHTTPCollector(t)
		p, _ := start(t, map[string]string{"OTEL_METRICS_EXPORTER": exporters, "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=prod"},
			func(c *otelsetup.Config) {
				c.Endpoint, c.Attributes = server.addr, []attribute.KeyValue{attribute.String("shard", "7")}
			})
		work(t, p)
		if got := strings.Contains(scrape(t, p.Handler(), ""), "\njobs_total 1\n"); got != want.scraped {
			t.Errorf("%q: scraped: %v, want %v", exporters, got, want.scraped)
		}
		emit(t, p)
		sent := server.metrics.String()
		for _, text := range []string{`"jobs"`, `"shard"`, `"deployment.environment.name"`, `"orders"`, "exemplars"} {
			if strings.Contains(sent, text) != want.sent {
				t.Errorf("%q: sent %s: %v, want %v: %s", exporters, text, !want.sent, want.sent, sent)
			}
		}
	}
}

// TestSampler: the environment's word counts, and what can't be read of it is logged.
func TestSampler(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	for _, c := range []struct {
		name, arg     string
		root, sampled bool
		warned        string
	}{
		{"", "", true, true, ""},
		{"always_off", "", false, false, ""},
		{"traceidratio", "0", false, false, ""},
		{"parentbased_traceidratio", "0", false, true, ""},
		{"parentbased_traceidratio", "1", true, true, ""},
		{"parentbased_traceidratio", "1%", true, true, `parsing sampler argument: strconv.ParseFloat: parsing \"1%\"`},
		{"sometimes", "", true, true, "unsupported sampler: sometimes"},
	} {
		p, log := start(t, map[string]string{"OTEL_TRACES_SAMPLER": c.name, "OTEL_TRACES_SAMPLER_ARG": c.arg}, func(cfg *otelsetup.Config) {
			cfg.KeepGlobals, cfg.TraceExporter = false, tracetest.NewInMemoryExporter()
		})
		tracer := p.TracerProvider.Tracer("test")
		_, root := tracer.Start(t.Context(), "root")
		_, in := tracer.Start(trace.ContextWithRemoteSpanContext(t.Context(), sampledParent), "in")
		if root.IsRecording() != c.root || in.IsRecording() != c.sampled {
			t.Errorf("%s %s: a root is sampled %v, a child of a sampled span %v", c.name, c.arg, root.IsRecording(), in.IsRecording())
		}
		if text := log.String(); !strings.Contains(text, c.warned) || c.warned == "" && text != "" {
			t.Errorf("%s %s: log %q, want %q", c.name, c.arg, text, c.warned)
		}
	}
}

// Settings that cannot be are refused at once, with what can be.
func TestBadSettings(t *testing.T) {
	type (
		vars   = map[string]string
		config = otelsetup.Config
	)
	for _, c := range []struct {
		env  vars
		cfg  config
		want string
	}{
		{vars{"OTEL_TRACES_EXPORTER": "zipkin"}, config{}, "zipkin"},
		{vars{"OTEL_METRICS_EXPORTER": "otlp,statsd"}, config{}, "statsd"},
		{vars{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, config{}, "metrics"},
		{nil, config{LogFormat: "xml"}, "xml"},
		{nil, config{Endpoint: "localhost:4317", Protocol: "carrier-pigeon"}, "carrier-pigeon"},
		{vars{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "smtp"}, config{}, "smtp"},
		{nil, config{Protocol: "foo"}, "foo"},
		{nil, config{Endpoint: "nonsense"}, "neither host:port"},
		{nil, config{Endpoint: "localhost:99999"}, "no port 99999"},
		{nil, config{Endpoint: "localhost:"}, "neither host:port"},
		{nil, config{Endpoint: "ftp://host"}, "ftp://host"},
		{nil, config{Endpoint: "http://"}, "neither host:port"},
		{nil, config{Endpoint: "http://a b"}, "invalid character"},
		{nil, config{Endpoint: "unix://user:secret@/x"}, "xxxxx"},
		{nil, config{Endpoint: "http://user:secret@host:x"}, "@host:x"},
		{nil, config{Endpoint: "http://user:secret/!@host"}, "@host"},
		{nil, config{Endpoint: "user:secret@host:4317"}, "@host:4317"},
		{nil, config{Endpoint: "http://host:x"}, `invalid port ":x"`},
	} {
		for _, v := range variables {
			t.Setenv(v, c.env[v])
		}
		c.cfg.KeepGlobals = true
		p, err := otelsetup.Start(t.Context(), c.cfg)
		if p != nil || !errors.Is(err, otelsetup.ErrConfig) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", c.cfg, err)
		}
		if err := p.Shutdown(t.Context()); err != nil { // deferred before the error is looked at
			t.Error(err)
		}
	}
}

// TestNowhereToSend: no exporter, no sampled roots; but ids for the log, and a trace that comes in goes on.
func TestNowhereToSend(t *testing.T) {
	p, log := start(t, nil, nil)
	tracer := p.TracerProvider.Tracer("test")
	ctx, root := tracer.Start(t.Context(), "root")
	if root.IsRecording() || !root.SpanContext().IsValid() {
		t.Error("a root that nobody will see is recorded")
	}
	p.Logger.InfoContext(ctx, "hello")
	if !strings.Contains(log.String(), root.SpanContext().TraceID().String()) {
		t.Errorf("log %s", log)
	}
	if _, span := tracer.Start(trace.ContextWithRemoteSpanContext(t.Context(), sampledParent), "in"); !span.SpanContext().IsSampled() {
		t.Error("a sampled trace is cut here")
	}
	// The default endpoint is used when it is asked for by name. That nobody listens there is no error until something
	// is to be sent.
	for _, env := range []map[string]string{{"OTEL_TRACES_SAMPLER": "always_on"}, {"OTEL_TRACES_EXPORTER": "otlp"}} {
		p, _ = start(t, env, nil)
		if _, span := p.TracerProvider.Tracer("test").Start(t.Context(), "root"); !span.IsRecording() {
			t.Errorf("%v is not respected", env)
		}
	}
}

func TestDisabled(t *testing.T) {
	p, log := start(t, map[string]string{"OTEL_SDK_DISABLED": "true"}, nil)
	ctx, span := p.TracerProvider.Tracer("test").Start(t.Context(), "span")
	if span.SpanContext().IsValid() {
		t.Error("a span")
	}
	counter, _ := p.MeterProvider.Meter("test").Int64Counter("jobs")
	counter.Add(ctx, 1)
	if text := scrape(t, p.Handler(), ""); strings.Contains(text, "jobs") || !strings.Contains(text, "go_goroutines") {
		t.Error("metrics of a disabled SDK")
	}
	p.Logger.Info("still here")
	if !strings.Contains(log.String(), "still here") {
		t.Error("no log")
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// stuck is an exporter that gets nothing through until the test ends. The SDK does not tell it that Shutdown
// gave up.
type stuck struct{ free chan struct{} }

func (s stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.free:
		return nil
	}
}

func (stuck) Shutdown(context.Context) error { return nil }

// TestShutdown: bounded by its ctx, once, and with the errors.
func TestShutdown(t *testing.T) {
	exporter := stuck{make(chan struct{})}
	defer close(exporter.free)
	p, _ := start(t, nil, func(c *otelsetup.Config) { c.TraceExporter = exporter })
	_, span := p.TracerProvider.Tracer("test").Start(t.Context(), "span")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := p.Shutdown(ctx) // or the test doesn't end
	if err == nil || !strings.HasPrefix(err.Error(), "otelsetup: shutdown: ") {
		t.Errorf("error %v", err)
	}
	if again := p.Shutdown(t.Context()); !errors.Is(again, err) {
		t.Errorf("second call: %v", again)
	}
}

// broken is a collector that fails.
type broken struct{ desc *prometheus.Desc }

func (b broken) Describe(c chan<- *prometheus.Desc) { c <- b.desc }
func (b broken) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.NewInvalidMetric(b.desc, errors.New("sensor is gone"))
}

func TestScrapeErrorsAreLogged(t *testing.T) {
	p, log := start(t, nil, nil)
	p.Registry.MustRegister(broken{prometheus.NewDesc("broken", "A collector that fails.", nil, nil)})
	rec := httptest.NewRecorder()
	p.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != 500 || !strings.Contains(log.String(), "sensor is gone") {
		t.Errorf("%d, log %s", rec.Code, log)
	}
}

func TestPropagators(t *testing.T) {
	for names, want := range map[string][]string{
		"": {"baggage", "traceparent", "tracestate"}, "baggage": {"baggage"}, " tracecontext , b3": {"traceparent", "tracestate"}, "none": {},
	} {
		p, log := start(t, map[string]string{"OTEL_PROPAGATORS": names}, nil)
		if got := slices.Sorted(slices.Values(p.Propagator.Fields())); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", names, got, want)
		}
		if warned := strings.Contains(log.String(), "not supported"); warned != strings.Contains(names, "b3") {
			t.Errorf("%q: log %s", names, log)
		}
	}
}

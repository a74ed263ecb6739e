package otelsetup_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/telemetry/internal/story"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// play starts the providers and has a recorder emit everything there is.
func play(t *testing.T) (*otelsetup.Providers, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	p, _ := start(t, nil, func(c *otelsetup.Config) {
		c.SpanProcessors = []sdktrace.SpanProcessor{sdktrace.NewSimpleSpanProcessor(spans)}
	})
	r, err := telemetry.NewRecorder(telemetry.Config{
		TracerProvider: p.TracerProvider, MeterProvider: p.MeterProvider, State: story.Busy, Logger: p.Logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	l := r.Lock("orders:42", "mutex", "", 0)
	ctx, span := p.TracerProvider.Tracer("test").Start(t.Context(), "caller")
	h := story.Everything(ctx, r, &l)
	t.Cleanup(func() {
		h.End(telemetry.EndReleased)
		span.End()
	})
	return p, spans
}

var (
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (lockdog\S+) (\S+)$`)
	sampleLine = regexp.MustCompile(`(?m)^(lockdog[a-z_]+)(?:\{(.*?)\})? `)
	groupLabel = regexp.MustCompile(`lockdog_group="([^"]*)"`)
)

// TestPrometheusNames compares a scrape with names.go, both ways: names, types and help texts. Sent by OTLP a
// metric has the same name in Prometheus, or that of OpenTelemetry.
func TestPrometheusNames(t *testing.T) {
	p, _ := play(t)
	text := scrape(t, p.Handler(), "text/plain")
	scraped := map[string]string{}
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		scraped[m[1]] = m[2]
	}
	translated := map[string]otlptranslator.MetricType{
		"counter":       otlptranslator.MetricTypeMonotonicCounter,
		"updowncounter": otlptranslator.MetricTypeNonMonotonicCounter,
		"histogram":     otlptranslator.MetricTypeHistogram,
		"gauge":         otlptranslator.MetricTypeGauge,
	}
	for _, m := range telemetry.Metrics {
		kind := m.Kind
		if kind == "updowncounter" {
			kind = "gauge"
		}
		if scraped[m.Prometheus] != kind {
			t.Errorf("%s is scraped as %q, want %s %s", m.Name, scraped[m.Prometheus], m.Prometheus, kind)
		}
		if !strings.Contains(text, "# HELP "+m.Prometheus+" "+m.Description+"\n") {
			t.Errorf("%s: help text differs", m.Prometheus)
		}
		delete(scraped, m.Prometheus)
		for strategy, want := range map[otlptranslator.TranslationStrategyOption]string{
			otlptranslator.UnderscoreEscapingWithSuffixes: m.Prometheus, otlptranslator.NoTranslation: m.Name,
		} {
			namer := otlptranslator.NewMetricNamer("", strategy)
			sent := otlptranslator.Metric{Name: m.Name, Unit: m.Unit, Type: translated[m.Kind]}
			if got, err := namer.Build(sent); err != nil || got != want {
				t.Errorf("%s by %s: %s, %v, want %s", m.Name, strategy, got, err, want)
			}
		}
	}
	for name := range scraped {
		t.Errorf("%s is not in names.go", name)
	}
}

// TestNumberOfSeries counts what one instance can make Prometheus keep, where names make as many groups as they may.
// docs/OBSERVABILITY.md has the figures.
func TestNumberOfSeries(t *testing.T) {
	p, _ := start(t, nil, nil)
	r, err := telemetry.NewRecorder(telemetry.Config{
		TracerProvider: p.TracerProvider, MeterProvider: p.MeterProvider, State: story.Busy, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for n := range 25 {
		l := r.Lock(fmt.Sprintf("tenant%d:job", n), "mutex", "", telemetry.RenewalSpansOff)
		defer story.Everything(t.Context(), r, &l).End(telemetry.EndReleased)
	}
	all, ofGroup := 0, map[string]int{"": 0}
	for _, s := range sampleLine.FindAllStringSubmatch(scrape(t, p.Handler(), "text/plain"), -1) {
		all++
		if group := groupLabel.FindStringSubmatch(s[2]); group != nil {
			ofGroup[group[1]]++
		} else {
			ofGroup[""]++
		}
	}
	groups := len(ofGroup) - 1
	if groups != 21 || ofGroup["_other"] == 0 {
		t.Fatalf("%d groups: %v", groups, ofGroup)
	}
	each, rest := ofGroup["tenant0"], ofGroup[""]
	if all != groups*each+rest {
		t.Errorf("%d series, want %d groups of %d, and %d: %v", all, groups, each, rest, ofGroup)
	}
	want := fmt.Sprintf("A group makes at most %d time series per instance, the rest %d: at most %d,%03d with the 20 groups that names make, and `_other`.",
		each, rest, all/1000, all%1000)
	const file = "docs/OBSERVABILITY.md"
	text, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
		t.Errorf("%s doesn't say %q", file, want)
	}
}

// TestExemplars: OpenMetrics carries exemplars that lead to spans that exist.
func TestExemplars(t *testing.T) {
	p, spans := play(t)
	text := scrape(t, p.Handler(), "application/openmetrics-text; version=1.0.0")
	traces := map[string]bool{}
	for _, s := range spans.GetSpans() {
		traces[s.SpanContext.TraceID().String()] = true
	}
	exemplar := regexp.MustCompile(`(?m)^(lockdog[a-z_]+?)(?:_bucket|_total)\{.*\} \S+ # \{(.*)\}`)
	with := map[string]bool{}
	for _, m := range exemplar.FindAllStringSubmatch(text, -1) {
		id := regexp.MustCompile(`trace_id="([0-9a-f]{32})"`).FindStringSubmatch(m[2])
		if id == nil || !traces[id[1]] {
			t.Errorf("%s: exemplar %s leads nowhere", m[1], m[2])
		}
		with[m[1]] = true
	}
	for _, want := range []telemetry.Metric{
		telemetry.MetricAcquireDuration, telemetry.MetricHoldDuration, telemetry.MetricUtilization,
		telemetry.MetricReleaseDuration, telemetry.MetricBatchDuration, telemetry.MetricRenewals, telemetry.MetricLosses, telemetry.MetricDeadlocks,
	} {
		if !with[strings.TrimSuffix(want.Prometheus, "_total")] {
			t.Errorf("%s has no exemplar", want.Prometheus)
		}
	}
}

// The registry also tells of the process, and whose metrics these are; never of scopes.
func TestScrapeSurroundings(t *testing.T) {
	p, _ := start(t, map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=prod"}, nil)
	counter, err := p.MeterProvider.Meter("some/scope").Int64Counter("jobs")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(context.Background(), 1)
	text := scrape(t, p.Handler(), "")
	for _, want := range []string{
		"\njobs_total 1\n", "\ngo_goroutines ", "\nprocess_open_fds ", `service_name="orders"`, `service_version="1.2.3"`,
		`deployment_environment_name="prod"`, "service_instance_id=", "host_name=",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the scrape", want)
		}
	}
	if strings.Contains(text, "otel_scope") {
		t.Error("scope labels")
	}
}

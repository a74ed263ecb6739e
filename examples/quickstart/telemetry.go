package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/term"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// startTelemetry sets OpenTelemetry up as a service does. The spans are printed with the logger that it returns.
func startTelemetry(ctx context.Context, out io.Writer) (*otelsetup.Providers, *slog.Logger, error) {
	f, ok := out.(*os.File)
	logger := slog.New(otelsetup.TraceHandler(tint.NewTextHandler(out, &tint.Options{
		TimeFormat:  "15:04:05.000",
		NoColor:     os.Getenv("NO_COLOR") != "" || !ok || !term.IsTerminal(int(f.Fd())),
		ReplaceAttr: brief,
	})))
	providers, err := otelsetup.Start(ctx, otelsetup.Config{
		ServiceName:    "quickstart",
		SpanProcessors: []sdktrace.SpanProcessor{sdktrace.NewSimpleSpanProcessor(spanPrinter{logger})},
	})
	return providers, logger, err
}

// spanPrinter is a span exporter that logs the spans. A service has one that sends them to Jaeger.
type spanPrinter struct{ logger *slog.Logger }

// ExportSpans implements sdktrace.SpanExporter.
func (p spanPrinter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		kind, _, _ := strings.Cut(s.Name(), " ")
		if kind == telemetry.SpanHeld.Name || s.Name() == telemetry.SpanBatch.Name {
			continue // the moment of a grant, or the call to Redis that several renewals share
		}
		level := slog.LevelInfo
		if s.Status().Code == codes.Error {
			level = slog.LevelWarn
		}
		args := []any{"took", s.EndTime().Sub(s.StartTime())}
		for _, a := range s.Attributes() {
			args = append(args, string(a.Key), a.Value.AsInterface())
		}
		args = append(args, "trace_id", s.SpanContext().TraceID().String())
		p.logger.Log(ctx, level, "span "+s.Name(), args...)
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (spanPrinter) Shutdown(context.Context) error { return nil }

// tooMuch has attributes that say little about a single lock on a single Redis.
const tooMuch = " group kind node size lag duration utilization attempts wakeups error_type type span_id "

// brief shortens log lines: lockdog.renewal.attempt becomes attempt, and trace ids, numbers and times get fewer digits.
func brief(_ []string, a slog.Attr) slog.Attr {
	a.Key = a.Key[strings.LastIndexByte(a.Key, '.')+1:]
	switch {
	case strings.Contains(tooMuch, " "+a.Key+" "):
		return slog.Attr{}
	case a.Key == "trace_id":
		return slog.String(a.Key, a.Value.String()[:8])
	case a.Value.Kind() == slog.KindFloat64:
		return slog.String(a.Key, fmt.Sprintf("%.3g", a.Value.Float64()))
	case a.Value.Kind() == slog.KindDuration:
		return slog.Duration(a.Key, a.Value.Duration().Round(100*time.Microsecond))
	}
	return a
}

// printCounters prints lockdog's counters as Prometheus reads them, except those that are 0.
func printCounters(out io.Writer, registry *prometheus.Registry) error {
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "\nWhat Prometheus would read at /metrics now (counters that moved):")
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetCounter().GetValue() == 0 || !strings.HasPrefix(family.GetName(), "lockdog_") {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			_, _ = fmt.Fprintf(out, "%s{%s} %v\n", family.GetName(), strings.Join(labels, ","),
				m.GetCounter().GetValue())
		}
	}
	return nil
}

//go:build chaos

package chaos_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// counts is the telemetry of a client process, added up as it comes: a run makes more spans than anybody wants to keep.
type counts struct {
	tracer *sdktrace.TracerProvider
	meter  *sdkmetric.MeterProvider
	reader *sdkmetric.ManualReader

	mu   sync.Mutex
	seen map[string]float64
}

var printed = slog.NewTextHandler(os.Stderr, nil)

func newCounts() *counts {
	c := &counts{reader: sdkmetric.NewManualReader(), seen: make(map[string]float64)}
	c.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(c))
	c.meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(c.reader))
	return c
}

func (c *counts) options() []lock.Option {
	return []lock.Option{lock.WithTracerProvider(c.tracer), lock.WithMeterProvider(c.meter), lock.WithLogger(slog.New(c))}
}

func (c *counts) add(key string, n float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[key] += n
}

// ExportSpans implements sdktrace.SpanExporter.
func (c *counts) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		word, _, _ := strings.Cut(s.Name(), " ")
		c.add(history.Labeled(history.CountSpans, word), 1)
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (c *counts) Shutdown(context.Context) error { return nil }

// Enabled implements slog.Handler.
func (c *counts) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (c *counts) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup implements slog.Handler.
func (c *counts) WithGroup(string) slog.Handler { return c }

// Handle implements slog.Handler.
func (c *counts) Handle(ctx context.Context, r slog.Record) error {
	if err := printed.Handle(ctx, r); err != nil { // for who wants to know why, if the run is kept
		return err
	}
	switch r.Message {
	case telemetry.LogLost.Message:
		c.add(history.CountLost, 1)
	case telemetry.LogMoreLost.Message:
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "count" {
				c.add(history.CountLost, float64(a.Value.Int64()))
			}
			return true
		})
	default:
		c.add("log "+r.Message, 1)
	}
	return nil
}

// labels are the one label of each metric that a history tells apart, beside the group.
var labels = map[string]attribute.Key{
	history.CountAcquisitions:             telemetry.KeyOutcome,
	history.CountReleases:                 telemetry.KeyOutcome,
	history.CountLosses:                   telemetry.KeyCause,
	history.CountCancellations:            telemetry.KeyReason,
	history.CountErrors:                   telemetry.KeyErrorType,
	history.CountMembersLost:              "",
	history.CountDeadlocks:                "",
	history.CountAgentRequests:            telemetry.KeyOutcome,
	telemetry.MetricRenewals.Name:         telemetry.KeyOutcome,
	telemetry.MetricTakeovers.Name:        telemetry.KeyReason,
	telemetry.MetricWakeups.Name:          telemetry.KeyWakeupSource,
	telemetry.MetricCommands.Name:         telemetry.KeyPurpose,
	telemetry.MetricPubSubReconnects.Name: "",
	telemetry.MetricLate.Name:             "",
	telemetry.MetricHeld.Name:             "",
	telemetry.MetricWaiting.Name:          "",
	telemetry.MetricWatchdogLeases.Name:   "",
}

// collect is all that was counted.
func (c *counts) collect() (map[string]float64, error) {
	var all metricdata.ResourceMetrics
	if err := c.reader.Collect(context.Background(), &all); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := make(map[string]float64, len(c.seen))
	for k, v := range c.seen {
		sum[k] = v
	}
	for _, sm := range all.ScopeMetrics {
		for _, m := range sm.Metrics {
			label, ok := labels[m.Name]
			points, isSum := m.Data.(metricdata.Sum[int64])
			if !ok || !isSum {
				continue
			}
			for _, p := range points.DataPoints {
				key := m.Name
				if v, ok := p.Attributes.Value(label); ok && label != "" {
					key = history.Labeled(key, v.AsString())
				}
				sum[key] += float64(p.Value)
			}
		}
	}
	return sum, nil
}

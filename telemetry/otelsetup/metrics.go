package otelsetup

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}

// newMeterProvider lets the registry read the SDK's metrics when it is scraped.
func newMeterProvider(registry *prometheus.Registry, res *resource.Resource) (*sdkmetric.MeterProvider, error) {
	exporter, err := otelprom.New(
		otelprom.WithRegisterer(registry),
		// The scope would be three more labels on every series, the same on all of them.
		otelprom.WithoutScopeInfo(),
		// The default depends on a global of another package; names must not.
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
	)
	if err != nil {
		return nil, fmt.Errorf("otelsetup: prometheus exporter: %w", err)
	}
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(res)), nil
}

func newHandler(registry *prometheus.Registry, logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		// Exemplars exist in OpenMetrics only.
		EnableOpenMetrics: true,
		ErrorLog:          scrapeLog{logger},
	})
}

// scrapeLog is the logger promhttp wants.
type scrapeLog struct{ logger *slog.Logger }

func (l scrapeLog) Println(v ...any) {
	l.logger.LogAttrs(context.Background(), slog.LevelWarn, "metrics scrape",
		slog.String("error", strings.TrimSpace(fmt.Sprintln(v...))))
}

package otelsetup

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
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

// newMeterProvider returns a provider whose metrics are scraped, pushed, both or neither.
func newMeterProvider(
	ctx context.Context, cfg Config, registry *prometheus.Registry, res *resource.Resource,
) (*sdkmetric.MeterProvider, error) {
	scraped, pushed, err := metricExporters()
	if err != nil {
		return nil, err
	}
	opts := []sdkmetric.Option{sdkmetric.WithResource(res)}
	if scraped {
		exporter, err := otelprom.New(
			otelprom.WithRegisterer(registry),
			// The scope would be three more labels on each series.
			otelprom.WithoutScopeInfo(),
			// The default depends on a global variable of another package.
			otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
		)
		if err != nil {
			return nil, fmt.Errorf("otelsetup: prometheus exporter: %w", err)
		}
		opts = append(opts, sdkmetric.WithReader(exporter))
	}
	if pushed {
		exporter, err := newMetricOTLP(ctx, cfg)
		if err != nil {
			return nil, err
		}
		opts = append(opts, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	}
	return sdkmetric.NewMeterProvider(opts...), nil
}

// metricExporters parses OTEL_METRICS_EXPORTER, a list. (OpenTelemetry's autoexport would open a port for Prometheus,
// with a second registry.)
func metricExporters() (scraped, pushed bool, err error) {
	names := env("OTEL_METRICS_EXPORTER")
	if names == "" {
		return true, false, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		switch name = strings.TrimSpace(name); name {
		case "prometheus":
			scraped = true
		case "otlp":
			pushed = true
		case "none":
		default:
			return false, false, fmt.Errorf(
				"%w: OTEL_METRICS_EXPORTER has %q; prometheus, otlp and none are supported", ErrConfig, name)
		}
	}
	return scraped, pushed, nil
}

func newMetricOTLP(ctx context.Context, cfg Config) (sdkmetric.Exporter, error) {
	endpoint, err := parseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	switch protocol := protocolOf(cfg, endpoint, "METRICS"); protocol {
	case protocolGRPC:
		return otlpmetricgrpc.New(ctx, sendTo(endpoint, metricsPath, otlpmetricgrpc.WithEndpointURL)...)
	case protocolHTTP:
		return otlpmetrichttp.New(ctx, sendTo(endpoint, metricsPath, otlpmetrichttp.WithEndpointURL)...)
	default: // the exporter of metrics has no JSON
		return nil, fmt.Errorf("%w: OTLP protocol of metrics is %q; %s and %s are supported",
			ErrConfig, protocol, protocolGRPC, protocolHTTP)
	}
}

// scrapeLog is the logger of promhttp.
type scrapeLog struct{ logger *slog.Logger }

func (l scrapeLog) Println(v ...any) {
	l.logger.LogAttrs(context.Background(), slog.LevelWarn, "metrics scrape",
		slog.String("error", strings.TrimSpace(fmt.Sprintln(v...))))
}

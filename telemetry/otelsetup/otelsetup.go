package otelsetup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// Config configures Start. The zero value is valid.
type Config struct {
	// ServiceName is the service.name of traces and metrics. OTEL_SERVICE_NAME takes precedence. Without both it is
	// unknown_service:<program>. Scrape the metrics with a job of the same name, so that traces and metrics can be
	// joined.
	ServiceName string
	// ServiceVersion is the service.version of traces and metrics. Attributes and OTEL_RESOURCE_ATTRIBUTES take
	// precedence. Without all of these there is none.
	ServiceVersion string
	// Attributes are further attributes of the resource. OTEL_RESOURCE_ATTRIBUTES takes precedence.
	Attributes []attribute.KeyValue

	// Endpoint receives traces, and metrics if OTEL_METRICS_EXPORTER has otlp. It is a URL (http://collector:4318), or
	// host:port for a connection without TLS. For protocols over HTTP, /v1/traces or /v1/metrics is added to its path,
	// and replaces a /v1/traces at its end. Empty: from the environment.
	Endpoint string
	// Protocol is grpc, http/protobuf or, for traces only, http/json. Empty: from the environment, otherwise grpc if
	// Endpoint has port 4317, and http/protobuf in all other cases. The choice isn't logged. A collector that takes
	// gRPC on another port, or whose endpoint is set by the environment, needs Protocol or OTEL_EXPORTER_OTLP_PROTOCOL.
	Protocol string
	// TraceExporter, if not nil, replaces OTLP. OTEL_TRACES_EXPORTER is then ignored.
	TraceExporter sdktrace.SpanExporter
	// SpanProcessors also receive all spans.
	SpanProcessors []sdktrace.SpanProcessor

	// LogOutput receives the log lines; nil: os.Stderr.
	LogOutput io.Writer
	// LogFormat is text or json. Empty: json if LogOutput is a file but not a terminal, as the stderr of a container;
	// otherwise text.
	LogFormat string
	// LogLevel is the lowest level that is logged; nil: slog.LevelInfo.
	LogLevel slog.Leveler
	// NoColor removes the colour from text. There is none either if LogOutput is a file but not a terminal, or if
	// NO_COLOR is set.
	NoColor bool

	// KeepGlobals leaves OpenTelemetry's globals and slog's default logger unchanged.
	KeepGlobals bool
}

// Providers are the result of Start.
type Providers struct {
	// These three are also OpenTelemetry's globals, unless Config.KeepGlobals is set.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider          // see OTEL_METRICS_EXPORTER; Registry has its metrics by default
	Propagator     propagation.TextMapPropagator // W3C trace context and baggage by default
	// Registry has the metrics of the Go runtime and the process and, by default, of MeterProvider. More collectors may
	// be registered.
	Registry *prometheus.Registry
	// Logger writes text or JSON, with trace_id and span_id from the ctx of the log call.
	Logger *slog.Logger

	once     sync.Once
	stop     []func(context.Context) error // in order
	stopping error                         // the result of Shutdown
}

// ErrConfig is matched by the error for an invalid setting: a Config.Endpoint that is neither a valid URL nor
// host:port, or an unknown protocol, exporter or format.
var ErrConfig = errors.New("otelsetup: bad setting")

// shutdownTimeout limits Shutdown if its ctx has no deadline.
const shutdownTimeout = 5 * time.Second

// Start sets up all providers. Unless Config.KeepGlobals is set, it makes them global: OpenTelemetry's providers,
// propagators and error handler, and slog's default logger. It opens no connection: exporters do so when they have
// something to send, and report errors to the error handler. After an error, at most the error handler stays set.
// Shutdown must be called before the program ends.
func Start(ctx context.Context, cfg Config) (*Providers, error) {
	logger, err := newLogger(cfg)
	if err != nil {
		return nil, err
	}
	p := &Providers{Logger: logger, Registry: newRegistry()}
	if !cfg.KeepGlobals {
		// First, because the SDK reports to it what it can't parse in the environment.
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			logger.Warn("telemetry error", "error", err.Error())
		}))
	}
	p.Propagator = newPropagator(p.Logger)
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		p.TracerProvider, p.MeterProvider = tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider()
	} else if err := p.startSDK(ctx, cfg); err != nil {
		return nil, err
	}
	if !cfg.KeepGlobals {
		slog.SetDefault(p.Logger)
		otel.SetTextMapPropagator(p.Propagator)
		otel.SetTracerProvider(p.TracerProvider)
		otel.SetMeterProvider(p.MeterProvider)
	}
	return p, nil
}

func (p *Providers) startSDK(ctx context.Context, cfg Config) error {
	res, err := newResource(ctx, cfg)
	if errors.Is(err, resource.ErrPartialResource) {
		// The program starts even if OTEL_RESOURCE_ATTRIBUTES can't be parsed.
		p.Logger.Warn("telemetry resource is incomplete", "error", err.Error())
	} else if err != nil {
		return fmt.Errorf("otelsetup: resource: %w", err)
	}
	tp, err := newTracerProvider(ctx, cfg, res)
	if err != nil {
		return err
	}
	mp, err := newMeterProvider(ctx, cfg, p.Registry, res)
	if err != nil {
		return errors.Join(err, tp.Shutdown(ctx))
	}
	p.TracerProvider, p.MeterProvider = tp, mp
	p.stop = []func(context.Context) error{tp.Shutdown, mp.Shutdown}
	return nil
}

// Handler returns the handler that serves the metrics in Registry. It uses OpenMetrics, with exemplars, if the request
// asks for that, as Prometheus does.
func (p *Providers) Handler() http.Handler {
	return promhttp.HandlerFor(p.Registry, promhttp.HandlerOpts{
		// Only OpenMetrics has exemplars.
		EnableOpenMetrics: true,
		ErrorLog:          scrapeLog{p.Logger},
	})
}

// Shutdown sends the remaining data and stops the providers. It ends with ctx, or after five seconds if ctx has no
// deadline. The global providers stay set but do nothing. A second call returns the result of the first. For nil, which
// Start returns with an error, Shutdown does nothing.
func (p *Providers) Shutdown(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.once.Do(func() {
		if _, ok := ctx.Deadline(); !ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, shutdownTimeout)
			defer cancel()
		}
		var errs []error
		for _, stop := range p.stop {
			errs = append(errs, stop(ctx))
		}
		if err := errors.Join(errs...); err != nil {
			p.stopping = fmt.Errorf("otelsetup: shutdown: %w", err)
		}
	})
	return p.stopping
}

// newResource describes the program. The environment is last, so that it takes precedence.
func newResource(ctx context.Context, cfg Config) (*resource.Resource, error) {
	attrs := slices.Clone(cfg.Attributes)
	if cfg.ServiceName != "" {
		attrs = append(attrs, semconv.ServiceName(cfg.ServiceName))
	}
	if cfg.ServiceVersion != "" {
		attrs = append(attrs, semconv.ServiceVersion(cfg.ServiceVersion))
	}
	return resource.New(ctx,
		resource.WithService(),
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithProcessPID(),
		resource.WithAttributes(attrs...),
		resource.WithFromEnv(),
	)
}

// newPropagator parses OTEL_PROPAGATORS. As the specification requires, an unknown name is logged and ignored.
func newPropagator(logger *slog.Logger) propagation.TextMapPropagator {
	names := env("OTEL_PROPAGATORS")
	if names == "" {
		names = "tracecontext,baggage"
	}
	var all []propagation.TextMapPropagator
	for name := range strings.SplitSeq(names, ",") {
		switch name = strings.TrimSpace(name); name {
		case "tracecontext":
			all = append(all, propagation.TraceContext{})
		case "baggage":
			all = append(all, propagation.Baggage{})
		case "none":
		default:
			logger.Warn("OTEL_PROPAGATORS names one that is not supported", "propagator", name)
		}
	}
	return propagation.NewCompositeTextMapPropagator(all...)
}

// env returns the first of the variables that isn't empty: by the specification an empty variable counts as unset.
func env(names ...string) string {
	for _, name := range names {
		if v := strings.TrimSpace(os.Getenv(name)); v != "" {
			return v
		}
	}
	return ""
}

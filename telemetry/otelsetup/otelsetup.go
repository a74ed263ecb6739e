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
	// ServiceName is the service.name of all telemetry; OTEL_SERVICE_NAME wins over it. Without either it is
	// unknown_service:<program>. Scrape the metrics under a job of the same name, so that both can be joined.
	ServiceName string
	// ServiceVersion is the service.version of all telemetry; empty: none.
	ServiceVersion string
	// Attributes are further attributes of the resource; OTEL_RESOURCE_ATTRIBUTES wins over them.
	Attributes []attribute.KeyValue

	// Endpoint is where traces go, and metrics if OTEL_METRICS_EXPORTER has otlp: a URL (http://collector:4318), or
	// host:port for a connection without TLS. For the protocols over HTTP /v1/traces or /v1/metrics is added to its
	// path. Empty: as the environment says.
	Endpoint string
	// Protocol is grpc, http/protobuf or, for traces only, http/json. Empty: as the environment says, else grpc if
	// Endpoint has port 4317 and http/protobuf if not, host:port and endpoints of the environment included. The choice isn't
	// logged: a collector that takes gRPC on another port needs this, or OTEL_EXPORTER_OTLP_PROTOCOL.
	Protocol string
	// TraceExporter is used in place of OTLP if not nil, whatever the environment says of exporters.
	TraceExporter sdktrace.SpanExporter
	// SpanProcessors receive every span, too.
	SpanProcessors []sdktrace.SpanProcessor

	// LogOutput is where log lines go; nil: os.Stderr.
	LogOutput io.Writer
	// LogFormat is text or json. Empty: json where LogOutput is a file that is no terminal, as stderr of a container,
	// else text.
	LogFormat string
	// LogLevel is the lowest level logged; nil: slog.LevelInfo.
	LogLevel slog.Leveler
	// NoColor takes the colour out of text. It is left out anyway where LogOutput is a file that is no
	// terminal, or NO_COLOR is set.
	NoColor bool

	// KeepGlobals leaves OpenTelemetry's globals and slog's default logger as they are.
	KeepGlobals bool
}

// Providers are what Start made.
type Providers struct {
	// These three are OpenTelemetry's globals, too, unless Config.KeepGlobals says otherwise.
	TracerProvider trace.TracerProvider          // samples and exports as Config and environment say
	MeterProvider  metric.MeterProvider          // of the metrics in Registry, unless OTEL_METRICS_EXPORTER says otherwise
	Propagator     propagation.TextMapPropagator // W3C trace context and baggage by default
	// Registry holds the metrics, and those of the Go runtime and the process. Further collectors may be
	// registered with it.
	Registry *prometheus.Registry
	// Logger writes lines, for people or in JSON, with trace_id and span_id of the ctx a record is logged with.
	Logger *slog.Logger

	handler  http.Handler
	once     sync.Once
	stop     []func(context.Context) error // in order
	stopping error
}

// ErrConfig is matched by the error of an invalid setting: an endpoint that is no URL, an unknown protocol, exporter or
// format.
var ErrConfig = errors.New("otelsetup: bad setting")

// shutdownTimeout bounds Shutdown where its ctx does not.
const shutdownTimeout = 5 * time.Second

// Start sets everything up and makes it global: OpenTelemetry's providers, propagators and error handler, and
// slog's default logger. It connects to nothing: exporters do when they have something to send, and the log has their failures.
// After an error only the error handler stays set.
// Call Shutdown before the program ends.
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
	p.handler = newHandler(p.Registry, p.Logger)
	if disabled() {
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
		// A misspelt OTEL_RESOURCE_ATTRIBUTES is no reason not to start.
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

// Handler serves the metrics in Registry, in OpenMetrics with exemplars to whoever asks for that, as Prometheus does.
func (p *Providers) Handler() http.Handler { return p.handler }

// Shutdown sends what is left and stops everything. It ends with ctx, and after five seconds if ctx has no
// deadline. The globals stay set but do nothing. Further calls return the first one's result. On nil, which Start returns with
// an error, it does nothing.
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

// newResource describes the program. The environment comes last and wins.
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

// newPropagator parses OTEL_PROPAGATORS. As the specification demands, an unknown name is logged and ignored.
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

func disabled() bool { return strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") }

// env returns the first of the variables that is not empty: to the specification an empty one is unset.
func env(names ...string) string {
	for _, name := range names {
		if v := strings.TrimSpace(os.Getenv(name)); v != "" {
			return v
		}
	}
	return ""
}

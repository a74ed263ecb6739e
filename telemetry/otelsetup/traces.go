package otelsetup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
	protocolJSON = "http/json"

	grpcPort    = "4317"
	tracesPath  = "/v1/traces"
	metricsPath = "/v1/metrics"
)

func newTracerProvider(ctx context.Context, cfg Config, res *resource.Resource) (*sdktrace.TracerProvider, error) {
	exporter, err := newExporter(ctx, cfg)
	if err != nil {
		return nil, err
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithResource(res)}
	if exporter != nil {
		opts = append(opts, sdktrace.WithBatcher(exporter))
	}
	for _, sp := range cfg.SpanProcessors {
		opts = append(opts, sdktrace.WithSpanProcessor(sp))
	}
	if exporter == nil && len(cfg.SpanProcessors) == 0 && env("OTEL_TRACES_SAMPLER") == "" {
		// Nobody would see the spans, nor follow exemplars and links to them. A trace that comes in sampled stays
		// sampled: other services may export their part of it.
		opts = append(opts, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	}
	return sdktrace.NewTracerProvider(opts...), nil
}

// newExporter returns the exporter of traces, nil if they aren't exported.
func newExporter(ctx context.Context, cfg Config) (sdktrace.SpanExporter, error) {
	if cfg.TraceExporter != nil {
		return cfg.TraceExporter, nil
	}
	if err := checkProtocol(cfg.Protocol); cfg.Protocol != "" && err != nil {
		return nil, err
	}
	named := cfg.Endpoint != "" || env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") != ""
	switch choice := env("OTEL_TRACES_EXPORTER"); {
	case choice == "none", choice == "" && !named:
		return nil, nil //nolint:nilnil // no exporter is a choice, not a failure
	case choice != "" && choice != "otlp":
		return nil, fmt.Errorf("%w: OTEL_TRACES_EXPORTER is %q; otlp and none are supported", ErrConfig, choice)
	}
	endpoint, err := parseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	protocol := protocolOf(cfg, endpoint, "TRACES")
	if err := checkProtocol(protocol); err != nil {
		return nil, err
	}
	if protocol == protocolGRPC {
		return otlptracegrpc.New(ctx, sendTo(endpoint, tracesPath, otlptracegrpc.WithEndpointURL)...)
	}
	opts := sendTo(endpoint, tracesPath, otlptracehttp.WithEndpointURL)
	if protocol == protocolJSON {
		opts = append(opts, otlptracehttp.WithEncoding(otlptracehttp.EncodingJSON))
	}
	return otlptracehttp.New(ctx, opts...)
}

func checkProtocol(protocol string) error {
	switch protocol {
	case protocolGRPC, protocolHTTP, protocolJSON:
		return nil
	}
	return fmt.Errorf("%w: OTLP protocol is %q; %s, %s and %s are supported",
		ErrConfig, protocol, protocolGRPC, protocolHTTP, protocolJSON)
}

// sendTo returns the option to send to endpoint with the path of a signal, which gRPC ignores. If the endpoint ends in
// the path of the traces, that is replaced. Without an endpoint it returns no option.
func sendTo[Option any](endpoint *url.URL, path string, option func(string) Option) []Option {
	if endpoint == nil {
		return nil
	}
	base := *endpoint
	base.Path = strings.TrimSuffix(base.Path, tracesPath)
	return []Option{option(base.JoinPath(path).String())}
}

// protocolOf returns the protocol of a signal: TRACES or METRICS.
func protocolOf(cfg Config, endpoint *url.URL, signal string) string {
	if cfg.Protocol != "" {
		return cfg.Protocol
	}
	if p := env("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" {
		return p
	}
	if endpoint != nil && endpoint.Port() == grpcPort {
		return protocolGRPC
	}
	return protocolHTTP
}

// parseEndpoint parses Config.Endpoint. It returns nil for an empty one: the exporters read the environment themselves.
func parseEndpoint(s string) (*url.URL, error) {
	if s == "" {
		return nil, nil //nolint:nilnil // none given
	}
	const neither = "it is neither host:port nor a valid http or https URL"
	invalid := func(why string) error {
		shown := s
		if at := strings.LastIndexByte(s, '@'); at >= 0 { // what precedes may be a password, and why may quote it
			shown, why = "xxxxx"+s[at:], neither
		}
		return fmt.Errorf("%w: OTLP endpoint %q: %s", ErrConfig, shown, why)
	}
	if !strings.Contains(s, "://") {
		if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
			return nil, invalid(neither)
		}
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, invalid(cmp.Or(errors.Unwrap(err), err).Error()) // without the URL, which is shown
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, invalid(neither)
	}
	if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > 65535) {
		return nil, invalid("there is no port " + u.Port())
	}
	return u, nil
}

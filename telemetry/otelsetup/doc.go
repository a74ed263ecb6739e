// Package otelsetup sets up OpenTelemetry for a program, in one call: traces over OTLP, metrics with exemplars for
// Prometheus or over OTLP, and a log whose lines have trace_id and span_id. The log is text for people, or JSON if
// stderr isn't a terminal, as in a container.
//
//	p, err := otelsetup.Start(ctx, otelsetup.Config{ServiceName: "orders"})
//	if err != nil {
//		return err
//	}
//	defer p.Shutdown(context.Background())
//	http.Handle("/metrics", p.Handler())
//
// It is for programs and examples. A library, such as lockdog, doesn't need it, nor does a program with its own
// OpenTelemetry setup.
//
// # Environment
//
// The variables of the OpenTelemetry specification apply:
//
//   - OTEL_SDK_DISABLED=true: no traces, and only the metrics of the Go runtime and the process. Logs and propagation
//     stay.
//   - OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES: take precedence over Config.
//   - OTEL_TRACES_EXPORTER: otlp or none. none takes precedence over Config.Endpoint.
//   - OTEL_METRICS_EXPORTER: a list of prometheus (the default: Providers.Handler serves them), otlp and none.
//   - OTEL_EXPORTER_OTLP_ENDPOINT, _PROTOCOL (grpc, http/protobuf, for traces http/json), _HEADERS, _CERTIFICATE,
//     _TIMEOUT, _COMPRESSION and their _TRACES_ and _METRICS_ forms. Config.Endpoint and Config.Protocol take
//     precedence.
//   - OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG: parentbased_traceidratio and 0.01 trace one request of 100 and
//     all that it calls. Without them, all requests are traced for which the caller made no decision (but see the next
//     section).
//   - OTEL_PROPAGATORS: tracecontext, baggage (both by default), none.
//   - OTEL_BSP_*, OTEL_SPAN_*, OTEL_METRIC_EXPORT_INTERVAL, _TIMEOUT and OTEL_METRICS_EXEMPLAR_FILTER.
//
// Start returns an error for another exporter, or for the unknown protocol of an exporter that is used. An unknown
// propagator is only logged. The SDK reads the other variables. If it can't parse one, it uses its default, which for a
// sampler is to trace all, and the log has a warning: "telemetry resource is incomplete" for OTEL_RESOURCE_ATTRIBUTES,
// "telemetry error" for the others, unless Config.KeepGlobals is set.
//
// NO_COLOR, if not empty, removes the colour from the log.
//
// # Without an endpoint for traces
//
// Apart from what Config.SpanProcessors export, spans are only exported if Config.TraceExporter is set, if
// Config.Endpoint or a variable names an endpoint, or if OTEL_TRACES_EXPORTER=otlp asks for the default endpoint:
// otherwise a program on a laptop would fill its log with refused connections. Without an exporter a trace that begins
// here isn't sampled, unless Config.SpanProcessors or OTEL_TRACES_SAMPLER is set. A trace that comes in sampled stays
// sampled, and log lines have its ids.
package otelsetup

// Package otelsetup gives a program OpenTelemetry in one call: traces over OTLP, metrics for Prometheus with
// exemplars, and a log whose lines carry trace_id and span_id.
//
//	p, err := otelsetup.Start(ctx, otelsetup.Config{ServiceName: "orders"})
//	if err != nil { ... }
//	defer p.Shutdown(context.Background())
//	http.Handle("/metrics", p.Handler())
//
// It is for programs and examples. A library, lockdog included, needs none of it; a program with an
// OpenTelemetry setup of its own keeps that.
//
// # Environment
//
// The variables of the OpenTelemetry specification apply:
//
//   - OTEL_SDK_DISABLED=true: no traces, no metrics but those of the Go runtime; logs and propagation stay.
//   - OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES: win over Config.
//   - OTEL_TRACES_EXPORTER: otlp or none. none wins over Config.Endpoint.
//   - OTEL_EXPORTER_OTLP_ENDPOINT, _PROTOCOL (grpc, http/protobuf, http/json), _HEADERS, _CERTIFICATE, _TIMEOUT,
//     _COMPRESSION and their _TRACES_ forms. Config.Endpoint and Config.Protocol win over them.
//   - OTEL_PROPAGATORS: tracecontext, baggage (both by default), none.
//   - OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_SPAN_*, OTEL_METRICS_EXEMPLAR_FILTER: read by the SDK.
//
// NO_COLOR, if not empty, takes the colour out of the log.
//
// # When there is nowhere to send traces
//
// Spans are exported only where an endpoint is named, by Config.Endpoint or by a variable, or where
// OTEL_TRACES_EXPORTER=otlp asks for the default one: a program started on a laptop should not fill its log
// with refused connections. Without an exporter a trace that begins here is not sampled, unless
// OTEL_TRACES_SAMPLER says otherwise; one that comes in sampled stays so, and log lines carry its ids.
package otelsetup

// Package otelsetup gives a program OpenTelemetry in one call: traces over OTLP, metrics with exemplars for
// Prometheus or over OTLP, and a log whose lines carry trace_id and span_id: readable ones in a terminal, JSON
// where stderr is none, as in a container.
//
//	p, err := otelsetup.Start(ctx, otelsetup.Config{ServiceName: "orders"})
//	if err != nil {
//		return err
//	}
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
//   - OTEL_METRICS_EXPORTER: a list of prometheus (the default: Providers.Handler serves them), otlp and none.
//   - OTEL_EXPORTER_OTLP_ENDPOINT, _PROTOCOL (grpc, http/protobuf, for traces http/json), _HEADERS, _CERTIFICATE,
//     _TIMEOUT, _COMPRESSION and their _TRACES_ and _METRICS_ forms. Config.Endpoint and Config.Protocol win over them.
//   - OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG: parentbased_traceidratio and 0.01 trace one request of 100 and
//     all that it calls. Without them every request is traced that its caller doesn't decide on.
//   - OTEL_PROPAGATORS: tracecontext, baggage (both by default), none.
//   - OTEL_BSP_*, OTEL_SPAN_*, OTEL_METRIC_EXPORT_INTERVAL, _TIMEOUT and OTEL_METRICS_EXEMPLAR_FILTER.
//
// An exporter or a protocol that is none of these is an error of Start. Of the rest, which the SDK reads, the log has
// a warning ("telemetry error") where it can't be read; the SDK then goes by its default, which for a sampler is to trace all.
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

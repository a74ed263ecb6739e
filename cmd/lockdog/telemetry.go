package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// lastWords bounds how long the program waits at its end for telemetry to be sent, and how long run waits for its
// client to close.
const lastWords = 3 * time.Second

// telemetry starts what the OTEL_* variables ask for. stop sends the remaining telemetry. If the variables are invalid,
// the command runs without telemetry: they may be meant for other programs on this machine, and a job that doesn't run
// is worse than one without a trace. The log goes to stderr, from warnings on.
func (a *app) telemetry(ctx context.Context) (p *otelsetup.Providers, stop func()) {
	p, err := otelsetup.Start(ctx, otelsetup.Config{
		ServiceName: "lockdog", ServiceVersion: telemetry.Version, LogOutput: a.stderr, LogLevel: slog.LevelWarn,
		KeepGlobals: true,
	})
	if err != nil {
		_, _ = fmt.Fprintf(a.stderr, "%s; so there is no telemetry\n", errorText(err))
		p = &otelsetup.Providers{
			TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(),
			Propagator: propagation.TraceContext{},
			Logger:     slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		}
	}
	return p, func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		_ = p.Shutdown(ctx)
	}
}

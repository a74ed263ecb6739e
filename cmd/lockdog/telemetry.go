package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// lastWords bounds how long the program waits at its end for telemetry to be sent.
const lastWords = 3 * time.Second

// providers are the telemetry of a command.
type providers struct {
	*otelsetup.Providers
}

// telemetry starts what the OTEL_* variables ask for. The log goes to stderr; below warnings it is silent.
func (a *app) telemetry(ctx context.Context) (*providers, error) {
	p, err := otelsetup.Start(ctx, otelsetup.Config{
		ServiceName: "lockdog", ServiceVersion: telemetry.Version, LogOutput: a.stderr, LogLevel: slog.LevelWarn, KeepGlobals: true,
	})
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	return &providers{p}, nil
}

// stop sends what is left.
func (p *providers) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	_ = p.Shutdown(ctx)
}

package otelsetup_test

import (
	"context"
	"log"
	"net/http"

	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// A program's main: traces go to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names, metrics are scraped from
// /metrics, and slog's lines carry the ids of the trace they belong to.
func ExampleStart() {
	ctx := context.Background()
	providers, err := otelsetup.Start(ctx, otelsetup.Config{ServiceName: "orders", ServiceVersion: "1.4.0"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := providers.Shutdown(ctx); err != nil {
			providers.Logger.Warn("some telemetry was not sent", "error", err)
		}
	}()
	http.Handle("/metrics", providers.Handler())
	// ... run the program.
}

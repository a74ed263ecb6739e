package otelsetup_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

// A program's main: traces go to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names, metrics are scraped from
// /metrics, and slog's lines carry the ids of the trace they belong to.
func ExampleStart() {
	ctx := context.Background()
	providers, err := otelsetup.Start(ctx, otelsetup.Config{
		ServiceName: "orders", ServiceVersion: "1.4.0",
		LogOutput: io.Discard, KeepGlobals: true, // a program leaves these two out
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := providers.Shutdown(ctx); err != nil {
			providers.Logger.Warn("some telemetry was not sent", "error", err)
		}
	}()
	http.Handle("/metrics", providers.Handler())

	// ... run the program: New finds the providers, as they are global. Here they aren't.
	srv := locktest.New(nil, lock.WithMeterProvider(providers.MeterProvider), lock.WithTracerProvider(providers.TracerProvider))
	defer srv.Close()
	lease, err := srv.Client().Mutex("order:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	scrape := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "lockdog_held{") {
			fmt.Print(line)
		}
	}
	fmt.Println(lease.Release(ctx))

	// Output:
	// lockdog_held{lockdog_group="order"} 1
	// <nil>
}

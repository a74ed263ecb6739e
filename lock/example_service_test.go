package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// Providers that aren't the global ones are options of New. These keep in memory what a program would export.
func ExampleWithTracerProvider() {
	ctx := context.Background()
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))

	srv := locktest.New(nil, // a program has lock.New(rdb, and then the same
		lock.WithTracerProvider(tracers),
		lock.WithMeterProvider(meters),
		lock.WithLogger(slog.Default()))
	defer srv.Close()
	err := srv.Client().Mutex("order:42").Do(ctx, func(context.Context, *lock.Lease) error { return nil })
	fmt.Println(err)

	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name)
	}
	var seen metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &seen); err != nil {
		log.Fatal(err)
	}
	for _, m := range seen.ScopeMetrics[0].Metrics {
		if points, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "lockdog.hold.duration" {
			fmt.Println(m.Name, "of", points.DataPoints[0].Count, "hold")
		}
	}

	// Unordered output:
	// <nil>
	// acquire order
	// held order
	// release order
	// hold order
	// lockdog.hold.duration of 1 hold
}

// A service that may run once only stops when it loses its lock, as it does when it is told to: it takes no more requests,
// lets those under way end, and says why. The alert for it is LockdogLockLost.
func Example_shutdown() {
	srv := locktest.New(nil, lock.WithLogger(slog.New(slog.DiscardHandler)))
	defer srv.Close()
	ctx := context.Background() // of signal.NotifyContext, in a program

	serve := func(ctx context.Context, l *lock.Lease) error {
		server := &http.Server{}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		stopped := make(chan struct{})
		context.AfterFunc(ctx, func() { // the lease is lost, or we are told to stop
			defer close(stopped)
			_ = server.Shutdown(context.WithoutCancel(ctx)) // requests end; bound it by what your orchestrator grants
		})
		srv.Lose(l.Name(), lock.CauseMissing) // somebody deletes the key in Redis
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		<-stopped
		return context.Cause(ctx)
	}
	err := srv.Client().Mutex("singleton:billing").Do(ctx, serve)
	var lost *lock.LostError
	if errors.As(err, &lost) {
		fmt.Println("stopped: lost", lost.Name+":", lost.Cause) // and exit, so that whoever started us does it again
	}

	// Output:
	// stopped: lost singleton:billing: missing
}

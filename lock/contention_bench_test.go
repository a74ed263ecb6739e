package lock_test

import (
	"fmt"
	"log/slog"
	"testing"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// BenchmarkContentionProfile is what the profile costs an acquire and its release, over the server in memory.
func BenchmarkContentionProfile(b *testing.B) {
	for _, rate := range []int{0, lock.DefaultContentionRate, 1} {
		b.Run(fmt.Sprint("rate ", rate), func(b *testing.B) {
			srv := locktest.New(b, lock.WithContentionProfile(rate), lock.WithLogger(slog.New(slog.DiscardHandler)),
				lock.WithTracerProvider(tracenoop.NewTracerProvider()), lock.WithMeterProvider(metricnoop.NewMeterProvider()))
			m := srv.Client().Mutex("job")
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if err := cycle(ctx, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

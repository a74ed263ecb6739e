package lock_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// What telemetry costs, over a real Redis. The allocations of a Recorder alone are tested in telemetry/alloc_test.go.
// Here the whole of TryLock and Release is measured, go-redis included.

// providers are ways to set up OpenTelemetry. The first is not to.
var providers = []struct {
	name string
	opts func() []lock.Option
}{
	{"unset", func() []lock.Option { return nil }},
	{"noop", func() []lock.Option {
		return []lock.Option{lock.WithTracerProvider(tracenoop.NewTracerProvider()), lock.WithMeterProvider(metricnoop.NewMeterProvider())}
	}},
	{"unsampled", func() []lock.Option { return sdk(sdktrace.NeverSample()) }},
	{"sampled", func() []lock.Option { return sdk(sdktrace.AlwaysSample()) }},
}

func sdk(sampler sdktrace.Sampler) []lock.Option {
	return []lock.Option{
		lock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(nowhere{}))),
		lock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))),
	}
}

// nowhere is an exporter that costs nothing.
type nowhere struct{}

func (nowhere) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (nowhere) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (nowhere) Shutdown(context.Context) error                  { return nil }
func (nowhere) ForceFlush(context.Context) error                { return nil }

// cycle is what is measured.
func cycle(ctx context.Context, m *lock.Mutex) error {
	l, err := m.TryLock(ctx)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

// Telemetry that goes nowhere allocates nothing: with no-op providers a cycle makes as many allocations as with unset
// ones. These are few: 22 when this was written, 12 of them go-redis's, and 5 more for a TryLock that its caller sends
// itself; some more with the race detector. A cycle with an SDK shows that the test would notice. Not parallel: it
// counts all allocations of the process.
func TestTelemetryThatGoesNowhereAllocatesNothing(t *testing.T) {
	for _, heeds := range []bool{false, true} { // then calls are sent by a worker, or by their caller
		t.Run(fmt.Sprint("ContextTimeoutEnabled ", heeds), func(t *testing.T) { telemetryAllocatesNothing(t, heeds) })
	}
}

func telemetryAllocatesNothing(t *testing.T, heeds bool) {
	const (
		rounds = 40 // at most
		cycles = 100
		most   = 32
		noise  = 0.9 // pools lose things at random when the race detector is on, and connections are renewed now and then
	)
	sp := redistest.Shared(t)
	var mutexes []*lock.Mutex
	for _, p := range providers {
		c, err := lock.New(sp.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = heeds }), append(p.opts(), lock.WithKeyPrefix(sp.Prefix()))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeSoon(c) })
		mutexes = append(mutexes, c.Mutex("job"))
	}
	per := make([]float64, len(mutexes))
	alike := func() bool { return math.Abs(per[1]-per[0]) <= noise && per[1] <= most }
	for round := range rounds + 1 { // the first is to warm up
		if round > 2 && alike() {
			break
		}
		for i, m := range mutexes {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range cycles {
				if err := cycle(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			runtime.ReadMemStats(&after)
			n := float64(after.Mallocs-before.Mallocs) / cycles
			// Whatever else allocates in the process makes it more, so the least is the truest.
			if round == 1 || round > 1 && n < per[i] {
				per[i] = n
			}
		}
	}
	unset, noop, unsampled, sampled := per[0], per[1], per[2], per[3]
	t.Logf("allocations of TryLock+Release: %.2f with unset providers, %.2f no-op, %.2f SDK unsampled, %.2f SDK sampled", unset, noop, unsampled, sampled)
	if !alike() {
		t.Errorf("%.2f allocations of TryLock+Release with no-op providers, %.2f with unset ones, want %d at most", noop, unset, most)
	}
	if sampled < unset+10 {
		t.Errorf("the measure is blind: %.2f allocations with the SDK, %.2f without", sampled, unset)
	}
}

func BenchmarkTryLockRelease(b *testing.B) {
	for _, p := range providers {
		b.Run(p.name, func(b *testing.B) {
			c, err := lock.New(redistest.Start(b).Client(b), p.opts()...)
			if err != nil {
				b.Fatal(err)
			}
			defer closeSoon(c)
			m := c.Mutex("job")
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

// What a renewal costs in CPU, and what WithLossNotifications adds to it: 2,000 locks, each renewed twice a second.
func BenchmarkRenewals(b *testing.B) {
	const locks, lease = 2000, 1500 * time.Millisecond
	for _, test := range []struct {
		name string
		opts []lock.Option
	}{{"plain", nil}, {"WithLossNotifications", []lock.Option{lock.WithLossNotifications()}}} {
		b.Run(test.name, func(b *testing.B) {
			srv := redistest.Start(b)
			c, err := lock.New(srv.Client(b), append(test.opts, lock.WithLease(lease))...)
			if err != nil {
				b.Fatal(err)
			}
			defer closeSoon(c)
			for i := range locks {
				if _, err := c.Mutex(fmt.Sprintf("job:%d", i)).TryLock(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			time.Sleep(lease)
			renewed := srv.Commands(b)["pexpireat"]
			redis, client := cpuOfRedis(b, srv), cpuOfSelf(b)
			for b.Loop() {
				time.Sleep(lease / 3)
			}
			n := float64(srv.Commands(b)["pexpireat"] - renewed)
			b.ReportMetric(float64((cpuOfRedis(b, srv)-redis).Microseconds())/n, "redis-µs/renewal")
			b.ReportMetric(float64((cpuOfSelf(b)-client).Microseconds())/n, "client-µs/renewal")
		})
	}
}

func cpuOfRedis(b *testing.B, srv *redistest.Server) (d time.Duration) {
	b.Helper()
	info := srv.Info(b, "cpu")
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info[field], 64)
		if err != nil {
			b.Fatal(err)
		}
		d += time.Duration(seconds * float64(time.Second))
	}
	return d
}

func cpuOfSelf(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

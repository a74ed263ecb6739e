package lock_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A program whose goroutines compute all the time: Go gives each of them 10 ms before the next has its turn, so that an
// answer of Redis is read that much later for each.

// starvation is what befalls a child: so many goroutines compute on its one core, while it holds locks for some time.
type starvation struct {
	spinning int
	lease    time.Duration
	locks    int           // each renewed by calls of its own
	period   time.Duration // 0: until each lock was renewed, or lost
}

// hunger is what came of it.
type hunger struct {
	calls, lost           int
	lag, answer, leaseUse float64 // p99: of the schedule in ms, of the calls in ms, of the leases as a share
}

func starve(t testing.TB, s starvation) (h hunger) {
	t.Helper()
	srv := redistest.Start(t)
	ch := startChild(t, "starved", srv.Addr(), fmt.Sprint(s.spinning, s.lease.Milliseconds(), s.locks, s.period.Milliseconds()))
	for line := range ch.lines {
		if _, err := fmt.Sscan(line, &h.calls, &h.lost, &h.lag, &h.answer, &h.leaseUse); err != nil {
			t.Fatalf("the child says %q", line)
		}
	}
	ch.wait(t)
	return h
}

// A lease is renewed beside what computes. Not parallel: it takes a core for itself.
func TestStarvedClientKeepsItsLock(t *testing.T) {
	h := starve(t, starvation{spinning: 4, lease: 10 * time.Second, locks: 3})
	t.Logf("%+v", h)
	if h.lost > 0 || h.calls == 0 {
		t.Errorf("%d locks lost, %d renewal calls", h.lost, h.calls)
	}
}

// BenchmarkStarved is where the figures of docs/BENCHMARKS.md come from: how late renewals go out, how long they take and whether
// locks are lost, by the number of goroutines that compute on the one core of the client. It takes five minutes.
func BenchmarkStarved(b *testing.B) {
	for _, s := range []starvation{
		{0, time.Second, 3, 15 * time.Second},
		{1, time.Second, 3, 15 * time.Second},
		{4, time.Second, 3, 15 * time.Second},
		{8, time.Second, 3, 15 * time.Second},
		{16, time.Second, 3, 15 * time.Second},
		{32, time.Second, 3, 15 * time.Second},
		{16, 30 * time.Second, 30, 45 * time.Second},
		{64, 30 * time.Second, 30, 45 * time.Second},
		{128, 30 * time.Second, 30, 45 * time.Second},
		{256, 30 * time.Second, 30, 45 * time.Second},
		{512, 30 * time.Second, 30, 45 * time.Second},
	} {
		b.Run(fmt.Sprintf("lease=%v/spinning=%d", s.lease, s.spinning), func(b *testing.B) {
			for range b.N {
				h := starve(b, s)
				b.ReportMetric(float64(h.calls), "calls")
				b.ReportMetric(float64(h.lost), "lost")
				b.ReportMetric(h.lag, "lag-p99-ms")
				b.ReportMetric(h.answer, "call-p99-ms")
				b.ReportMetric(h.leaseUse, "lease-used-p99")
			}
		})
	}
}

func childStarved(addr, terms string, say func(string, ...any)) error {
	var s starvation
	var lease, period int64
	if _, err := fmt.Sscan(terms, &s.spinning, &lease, &s.locks, &period); err != nil {
		return err
	}
	s.lease, s.period = time.Duration(lease)*time.Millisecond, time.Duration(period)*time.Millisecond

	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithView(sdkmetric.NewView(
		sdkmetric.Instrument{Name: "lockdog.*", Kind: sdkmetric.InstrumentKindHistogram},
		sdkmetric.Stream{Aggregation: sdkmetric.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20}}, // finer than buckets
	)))
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	c, err := lock.New(rdb, lock.WithMeterProvider(meter), lock.WithLease(s.lease), lock.WithRenewalBatch(1))
	if err != nil {
		return err
	}
	defer closeSoon(c)
	var leases []*lock.Lease
	var first []time.Time // their ends
	for i := range s.locks {
		l, err := c.Mutex(fmt.Sprintf("job:%d", i)).TryLock(context.Background())
		if err != nil {
			return err
		}
		leases, first = append(leases, l), append(first, l.Deadline())
	}
	runtime.GOMAXPROCS(1)
	var over atomic.Bool
	for range s.spinning {
		go func() {
			for !over.Load() {
			}
		}()
	}
	time.Sleep(s.period)
	var h hunger
	for i, l := range leases {
		for s.period == 0 && l.Err() == nil && !l.Deadline().After(first[i]) {
			time.Sleep(10 * time.Millisecond)
		}
		if l.Err() != nil {
			h.lost++
		}
	}
	over.Store(true)
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		return err
	}
	h.calls, h.lag = percentile99(&all, telemetry.MetricScheduleLag)
	_, h.answer = percentile99(&all, telemetry.MetricBatchDuration)
	_, h.leaseUse = percentile99(&all, telemetry.MetricUtilization)
	say("%d %d %.1f %.1f %.2f", h.calls, h.lost, h.lag*1000, h.answer*1000, h.leaseUse)
	return nil
}

// percentile99 returns the number of values in a histogram and their 99th percentile, exact to a few percent.
func percentile99(all *metricdata.ResourceMetrics, m telemetry.Metric) (n int, p99 float64) {
	buckets := make(map[float64]uint64) // by their upper bound
	for _, sm := range all.ScopeMetrics {
		for _, got := range sm.Metrics {
			d, ok := got.Data.(metricdata.ExponentialHistogram[float64])
			if got.Name != m.Name || !ok {
				continue
			}
			for _, p := range d.DataPoints {
				n += int(p.Count)
				buckets[0] += p.ZeroCount
				for i, count := range p.PositiveBucket.Counts {
					buckets[math.Exp2(float64(int(p.PositiveBucket.Offset)+i+1)*math.Exp2(-float64(p.Scale)))] += count
				}
			}
		}
	}
	seen := uint64(0)
	for _, bound := range slices.Sorted(maps.Keys(buckets)) {
		if seen += buckets[bound]; seen*100 >= uint64(n)*99 {
			return n, bound
		}
	}
	return n, 0
}

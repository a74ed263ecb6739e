package watchdog

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

type quiet struct{}

func (quiet) Renewal(Renewal)           {}
func (quiet) Lost(Loss)                 {}
func (quiet) Alarm(time.Time) time.Time { return time.Time{} }

func renewAll(_ context.Context, b *Batch) {
	for i := range b.Results {
		b.Results[i].Outcome = Renewed
	}
}

func benchEngine(b *testing.B, leases int, interval time.Duration, renew func(context.Context, *Batch)) (*Engine, []Lease) {
	e, err := New(Config{Renew: renew})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	held := make([]Lease, leases)
	sent := time.Now()
	for i := range held {
		e.Watch(&held[i], Spec{TTL: 3 * interval, Interval: interval, Sent: sent, Holder: quiet{}})
	}
	return e, held
}

// BenchmarkWatchRemove is what a lock pays the engine beside its two calls to the server.
func BenchmarkWatchRemove(b *testing.B) {
	for _, held := range []int{0, 1, 1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			e, _ := benchEngine(b, held, time.Hour, renewAll)
			locks := make([]Lease, 1024) // each used once: a lease is not watched twice
			spec := Spec{TTL: 3 * time.Hour, Interval: time.Hour, Holder: quiet{}}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l := &locks[i%len(locks)]
				l.status.Store(unwatched)
				spec.Sent = time.Now()
				e.Watch(l, spec)
				e.Remove(l)
			}
		})
	}
}

// BenchmarkWatchRemoveParallel is the same from all CPUs: there is one lock.
func BenchmarkWatchRemoveParallel(b *testing.B) {
	e, _ := benchEngine(b, 1000, time.Hour, renewAll)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		l := new(Lease)
		spec := Spec{TTL: 3 * time.Hour, Interval: time.Hour, Holder: quiet{}}
		for pb.Next() {
			l.status.Store(unwatched)
			spec.Sent = time.Now()
			e.Watch(l, spec)
			e.Remove(l)
		}
	})
}

// BenchmarkRound renews every lease once, as fast as the engine can: the cost per lease must not grow with their number.
func BenchmarkRound(b *testing.B) {
	for _, leases := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			e, _ := benchEngine(b, leases, time.Hour, renewAll)
			var skew atomic.Int64
			e.mu.Lock() // the passes are made here, by a clock that is set forward
			clock := e.clock
			e.clock = func() time.Time { return clock().Add(time.Duration(skew.Load())) }
			steps := e.cohorts
			e.mu.Unlock()
			rounds := 0
			for b.Loop() {
				rounds++
				for range steps {
					skew.Add(int64(time.Hour) / int64(steps))
					e.mu.Lock()
					e.pass(e.now())
					e.mu.Unlock()
					for flying := true; flying; {
						e.mu.Lock()
						flying = e.partitions[""].calls > 0 || e.callbacks.open
						e.mu.Unlock()
						if flying {
							runtime.Gosched()
						}
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rounds*leases), "ns/renewal")
		})
	}
}

// BenchmarkMemory is what a watched lease takes, its own 112 bytes included.
func BenchmarkMemory(b *testing.B) {
	for _, leases := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				e, held := benchEngine(b, leases, time.Hour, renewAll)
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(leases), "B/lease")
				runtime.KeepAlive(held)
				e.Close()
			}
		})
	}
}

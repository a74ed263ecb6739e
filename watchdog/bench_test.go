package watchdog

import (
	"context"
	"fmt"
	"testing"
	"time"
)

type quiet struct{}

func (quiet) Renewal(Renewal)           {}
func (quiet) Lost(Loss)                 {}
func (quiet) Alarm(time.Time) time.Time { return time.Time{} }

// BenchmarkWatchRemove is what a lock pays the engine beside its two calls to the server.
func BenchmarkWatchRemove(b *testing.B) {
	for _, held := range []int{0, 1, 1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			e, err := New(Config{Renew: func(context.Context, *Batch) {}})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(e.Close)
			spec := Spec{TTL: 3 * time.Hour, Interval: time.Hour, Sent: time.Now(), Holder: quiet{}}
			others := make([]Lease, held)
			for i := range others {
				e.Watch(&others[i], spec)
			}
			locks := make([]Lease, 1024) // each used once: a lease is not watched twice
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

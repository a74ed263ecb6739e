package lockdebug_test

import (
	"net/http"
	"testing"

	"github.com/lockdog/lockdog/lock"
)

// A request for the first page of 1,000 locks, of which all have to be looked at and put in order.
func BenchmarkThousand(b *testing.B) {
	r := newRig(b, lock.WithFixedLease(1e12))
	r.hold(names("bulk", 1_000))
	for name, target := range map[string]string{
		"first": "/", "filtered": "/?q=BULK:09", "sorted": "/?sort=name", "big": "/?per=1000",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if w := ask(r.page, http.MethodGet, target); w.Code != http.StatusOK {
					b.Fatal(w.Code)
				}
			}
		})
	}
	b.Run("leases alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.srv.Client().Leases()
		}
	})
}

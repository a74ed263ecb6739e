package contention_test

import (
	"fmt"
	"testing"

	"github.com/lockdog/lockdog/lock/internal/contention"
)

// BenchmarkAcquire measures what an acquire and its release call.
func BenchmarkAcquire(b *testing.B) {
	for _, rate := range []int{0, 100, 10, 1} {
		for _, waits := range []bool{false, true} { // the count of waiters is kept in any case
			b.Run(fmt.Sprint("rate ", rate, ", waits ", waits), func(b *testing.B) {
				p := contention.New(rate)
				b.ReportAllocs()
				for b.Loop() {
					s := deep(p, 0, 30)
					if waits {
						p.Waiters("a", 1)
						s.WaitStart("a")
						p.Waiters("a", -1)
					}
					s.Granted("a")
					s.End()
				}
			})
		}
	}
}

// ... and what a look at the profile takes, while 10,000 locks are waited for.
func BenchmarkSnapshot(b *testing.B) {
	p := contention.New(1)
	for i := range 10_000 {
		deep(p, i, 10).WaitStart(fmt.Sprintf("name:%d", i))
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Snapshot()
	}
}

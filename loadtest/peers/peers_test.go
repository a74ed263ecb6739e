// Package peers compares lockdog with other lock libraries for Redis, and with the minimum cost of a lock, in ordinary
// benchmarks. From the repository's root:
//
//	make peers
//	go test ./loadtest/peers -run='^$' -bench='Distinct/callers=256/rtt=0s' -benchtime=2s
//
// Each library runs in its own processes with its own Redis. A peer whose name ends in +pool has a connection for each
// caller. The others have go-redis's default pool, or rueidis's one connection. Everybody gives Lock a ctx that can be
// canceled, and says the lock's name at each call. An rtt is simulated: a proxy holds all bytes for half of it in each
// direction. A benchmark fails if two callers hold one lock at the same time.
//
// What the figures mean:
//
//	p50-ns, p99-ns, longest-ns  of a lock and its release, or a TryLock; if all want one name, of the wait alone
//	handoffs/s                  grants to another caller than the last one's, with several processes to another process
//	handoff-ns                  from the start of a release to the grant to a caller that was waiting already, median
//	cmds/op, cmds/handoff       commands that Redis received over the network, without those that scripts call
//	client-ns/op, redis-ns/op   CPU time of all client processes, and of Redis
//	allocs/op, B/op             of the client process
//	fair                        most turns of a caller, with several processes of a process, divided by the least
//	unserved                    callers without a turn; like fair, only if there were two turns for each caller
//	stuck                       callers that got no lock within two seconds after all others had stopped
//	untold                      losses of which a holder wasn't told within twice the lease
package peers

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
)

func TestMain(m *testing.M) {
	if fleet.IsChild() { // this program is also the child processes of its benchmarks
		os.Exit(fleet.Serve(os.Stdin, os.Stdout, openWorker))
	}
	logging.Disable() // losses that are caused on purpose are figures
	slog.SetDefault(slog.New(slog.DiscardHandler))
	m.Run()
}

const (
	// Round trips between two zones of a region, and between two close regions.
	zone   = 2 * time.Millisecond
	region = 10 * time.Millisecond

	// Locks are held for a much shorter time. So no lease is renewed, as is usual for short work.
	longLease = 30 * time.Second
)

var (
	libraries = []string{bsmRedislock, goRedsync, rueidisLock, lockdog}
	single    = slices.Concat([]string{rawFloor}, libraries, []string{lockdogSDK})
	batching  = withPools(rawFloor, rueidisLock, lockdog)
)

// withPools adds a pooled peer for each peer that uses go-redis.
func withPools(names ...string) (all []string) {
	for _, name := range names {
		all = append(all, name)
		if name != rueidisLock { // it has one connection for all callers, whatever the pool size
			all = append(all, name+pooled)
		}
	}
	return all
}

// BenchmarkDistinct measures lock and release by callers that each have their own names.
func BenchmarkDistinct(b *testing.B) {
	for _, rtt := range []time.Duration{0, zone, region} {
		for _, callers := range []int{1, 64, 256, 2048} {
			peers := batching
			switch {
			case callers == 1:
				peers = single
			case callers == 256 && rtt == 0:
				peers = withPools(single...)
			}
			b.Run(fmt.Sprintf("callers=%d/rtt=%v", callers, rtt), func(b *testing.B) {
				compare(b, peers, work{Kind: distinct, Callers: callers, RTT: rtt})
			})
		}
	}
}

// BenchmarkCluster measures lock and release by callers that each have their own names, in a Cluster of three nodes.
func BenchmarkCluster(b *testing.B) {
	b.Run("callers=256", func(b *testing.B) {
		compare(b, batching, work{Kind: distinct, Callers: 256, Cluster: true})
	})
}

// BenchmarkOne measures callers that all want one name. With a pause each sleeps for a random time up to it after each
// lock, otherwise it asks again at once.
func BenchmarkOne(b *testing.B) {
	for _, rtt := range []time.Duration{0, zone} {
		peers := append([]string{rawGate}, libraries...)
		if rtt > 0 {
			peers = []string{rawGate, rueidisLock, lockdog}
		}
		for _, w := range []work{
			{Processes: 1, Callers: 64},
			{Processes: 4, Callers: 8},
			{Processes: 4, Callers: 8, Pause: 10 * time.Millisecond},
		} {
			w.Kind, w.RTT = one, rtt
			b.Run(fmt.Sprintf("procs=%d/callers=%d/pause=%v/rtt=%v", w.Processes, w.Callers, w.Pause, rtt),
				func(b *testing.B) { compare(b, peers, w) })
		}
	}
}

// BenchmarkHeld measures TryLock of a lock that another client holds.
func BenchmarkHeld(b *testing.B) {
	compare(b, append([]string{rawScript}, libraries...), work{Kind: trying, Callers: 1})
}

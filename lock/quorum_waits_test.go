package lock_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Whoever waits is woken by the release, by whichever nodes are left. (How else a wait ends is in the conformance suite.)
func TestQuorumWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a, b := ns.quorum(lock.WithLease(2*steady)), ns.quorum(lock.WithLease(2*steady))
		l := a.everywhere(t, a.Mutex("job")) // one of its nodes dies
		next := begin(t.Context(), b.Mutex("job"))
		for i, c := range b.clients {
			waiting(t, c, 1)
			eventually(t, patience, func() bool {
				return slices.ContainsFunc(c.Leases(), func(info lock.LeaseInfo) bool { return info.Kind == "quorum" && info.WaitsFor != "" })
			})
			subscribed(t, ns.raw[i], 1)
		}
		time.Sleep(quorumLease)
		polls := b.sum(t, telemetry.MetricWakeups)
		ns.servers[1].Kill(t)
		start := time.Now()
		free(t, l)
		l = granted(t, next)
		if took := time.Since(start); took > 50*time.Millisecond { // each pauses for a while before it asks
			t.Errorf("it took %v from the release to the next grant", took)
		}
		if polls > 8 { // the server's end may have it ask once more
			t.Errorf("%v wakeups while it waited", polls)
		}
		if n := b.sum(t, telemetry.MetricWaiting); n != 0 {
			t.Errorf("%v wait", n)
		}
		free(t, l)

		// Who comes while others wait here asks nobody.
		l = try(t, a.Mutex("job"))
		queue := []<-chan taken{begin(t.Context(), b.Mutex("job"))}
		waiting(t, b.clients[0], 1)
		time.Sleep(quorumLease / 4)
		sent := b.sent(t, telemetry.PurposeAcquire)
		for i := range 3 {
			queue = append(queue, begin(t.Context(), b.Mutex("job")))
			waiting(t, b.clients[0], i+2)
		}
		if n := b.sent(t, telemetry.PurposeAcquire) - sent; n > 3 { // the first of them may poll
			t.Errorf("three who came later made %d calls", n)
		}
		free(t, l)
		for _, next := range queue { // first come, first served
			free(t, granted(t, next))
		}
	})
}

// Processes contend: never two hold it, tokens rise, and split votes don't stop them. A node that doesn't answer is waited for
// once by each process: those whose votes are split don't wait for it each time, with a vote that the others need.
func TestQuorumContention(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"all nodes answer": false, "one is silent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const processes, each, lease = 8, 12, 10 * time.Second // a node has a second
				ns := startNodes(t, 3)
				var parties []*party
				for range processes {
					p := ns.quorum(lock.WithLease(lease))
					parties = append(parties, p)
					free(t, try(t, p.Mutex("job"))) // connections, scripts
					ns.mustBeFree("job")
				}
				ns.jitter()
				if silent {
					ns.mute(2, true)
				}
				last, turns, slow, freed := int64(0), 0, 0, time.Now()
				lockInTurn(t, parties, each, func(l *lock.Lease) {
					if l.Token() <= last {
						t.Errorf("token %d after %d", l.Token(), last)
					}
					last, turns = l.Token(), turns+1
					if time.Since(freed) > lease/12 {
						slow++
					}
				}, func() { freed = time.Now() })
				if turns != processes*each {
					t.Errorf("%d turns", turns)
				}
				asked := 0.0
				for _, p := range parties {
					asked += float64(p.sent(t, telemetry.PurposeAcquire)) / 3
				}
				t.Logf("%.1f polls for a turn", asked/float64(turns))
				if asked > 11*float64(turns) { // it is 3 to 6, and 16 to 22 where nobody pauses
					t.Errorf("%.0f polls: they get in each other's way", asked)
				}
				if slow > processes || slow > 0 && !silent {
					t.Errorf("the lock was free for the time of a node before %d of %d turns", slow, turns)
				}
			})
		})
	}
}

// lockInTurn has all parties lock one name, each so many times, and watches that they exclude each other. held is called by whoever
// has the lock, released by whoever just gave it back; both one call at a time.
func lockInTurn(t *testing.T, parties []*party, each int, held func(*lock.Lease), released func()) {
	t.Helper()
	var (
		mu     sync.Mutex
		inside atomic.Int32
		all    sync.WaitGroup
	)
	for _, p := range parties {
		all.Go(func() {
			for range each {
				l, err := p.Mutex("job").Lock(t.Context())
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold it", n)
				}
				mu.Lock()
				held(l)
				mu.Unlock()
				inside.Add(-1)
				err = l.Release(t.Context())
				mu.Lock()
				released()
				mu.Unlock()
				if err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	all.Wait()
}

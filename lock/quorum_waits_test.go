package lock_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/lockdog/lockdog/internal/redistest"
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

// TestQuorumHeldAtAMajority checks that a lock which a majority of the nodes calls held is held to the caller, too,
// although other nodes fail before the last one of the majority has answered.
func TestQuorumHeldAtAMajority(t *testing.T) {
	t.Parallel()
	const nodeTimeout = time.Second // of a lease of 10 s and more
	setUp := func(t *testing.T, n, refusing int, refusal string) (*nodes, *lock.QuorumMutex) {
		ns := startNodes(t, n)
		holder := ns.quorum(lock.WithLease(time.Hour))
		holder.everywhere(t, holder.Mutex("job"))
		for _, srv := range ns.servers[:refusing] {
			srv.SetRefusal(func(cmd string, _ ...string) string {
				if strings.HasPrefix(cmd, "EVAL") {
					return refusal
				}
				return ""
			})
		}
		return ns, ns.quorum(lock.WithLease(time.Minute)).Mutex("job", lock.WithWait(20*time.Second))
	}
	answerIn := func(w *wireTap, d time.Duration) {
		w.set(redistest.ReplyTo(redistest.Delay(d), w.script("acquire", "job")))
	}
	t.Run("slow", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ns, m := setUp(t, 3, 1, "NOPERM this user has no permissions")
			answerIn(ns.wires[2], nodeTimeout/2)
			_, err := m.TryLock(t.Context())
			mustMatch(t, err, lock.ErrHeld)
		})
	})
	t.Run("silent before", func(t *testing.T) { // so that the others are waited for first
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ns, m := setUp(t, 3, 1, "NOPERM this user has no permissions")
			answerIn(ns.wires[2], 2*nodeTimeout)
			_, err := m.TryLock(t.Context())
			mustMatch(t, err, lock.ErrUnavailable)
			answerIn(ns.wires[2], nodeTimeout/2)
			_, err = m.TryLock(t.Context())
			mustMatch(t, err, lock.ErrHeld)
		})
	})
	t.Run("ctx ends before", func(t *testing.T) { // then the error has what failed, too
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ns, m := setUp(t, 3, 1, "LOADING Redis is loading the dataset in memory")
			answerIn(ns.wires[2], nodeTimeout/2)
			for _, take := range []func(context.Context) (*lock.Lease, error){m.TryLock, m.Lock} {
				for _, limit := range []time.Duration{nodeTimeout * 2 / 5, time.Hour} {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					time.AfterFunc(nodeTimeout*2/5+time.Millisecond, cancel)
					_, err := take(ctx)
					mustMatch(t, err, ctx.Err())
					mustMatch(t, err, lock.ErrUnavailable)
					time.Sleep(nodeTimeout) // the late answer
				}
			}
		})
	})
	t.Run("half of them later", func(t *testing.T) { // two of four aren't enough to free the lock
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ns, m := setUp(t, 4, 2, "LOADING Redis is loading the dataset in memory")
			next := begin(t.Context(), m)
			time.Sleep(time.Second)
			ns.refuse("")
			mustMatch(t, (<-next).err, lock.ErrHeld)
		})
	})
}

// TestQuorumHeadLeavesAsItAsks checks that a waiter asks at once if the one before it was woken by a release, and its ctx
// ended before it had asked the nodes.
func TestQuorumHeadLeavesAsItAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns, ctx, m := startNodes(t, 3), t.Context(), &wakeupMeters{MeterProvider: noop.NewMeterProvider()}
		a, b := ns.quorum(lock.WithLease(steady)), ns.quorum(lock.WithLease(steady), lock.WithMeterProvider(m))
		l := a.everywhere(t, a.Mutex("job"))
		firstCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		first := begin(firstCtx, b.Mutex("job"))
		waiting(t, b.clients[0], 1)
		second := begin(ctx, b.Mutex("job"))
		waiting(t, b.clients[0], 2)
		time.Sleep(time.Second) // until it is subscribed, and has asked once more
		m.woken.Store(&cancel)
		freed := time.Now()
		free(t, l)
		mustMatch(t, await(t, "Lock", first).err, context.Canceled)
		free(t, granted(t, second))
		if took := time.Since(freed); took > 100*time.Millisecond {
			t.Errorf("the lock was free for %v", took)
		}
	})
}

// wakeupMeters calls woken, once, when a wake-up is counted: before the waiter asks.
type wakeupMeters struct {
	metric.MeterProvider
	woken atomic.Pointer[context.CancelFunc]
}

func (m *wakeupMeters) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return wakeupMeter{m.MeterProvider.Meter(name, opts...), m}
}

type wakeupMeter struct {
	metric.Meter
	of *wakeupMeters
}

func (m wakeupMeter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c, err := m.Meter.Int64Counter(name, opts...)
	if name == telemetry.MetricWakeups.Name {
		return wakeupCounter{c, m.of}, err
	}
	return c, err
}

type wakeupCounter struct {
	metric.Int64Counter
	of *wakeupMeters
}

func (c wakeupCounter) Add(context.Context, int64, ...metric.AddOption) {
	if woken := c.of.woken.Swap(nil); woken != nil {
		(*woken)()
		time.Sleep(time.Microsecond) // until that has ended the calls
	}
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

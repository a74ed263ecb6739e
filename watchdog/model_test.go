package watchdog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// op is one step of a random history; its numbers are drawn beforehand, so that rapid can shrink them.
type op struct {
	kind string
	n    int
	kept time.Duration
}

// model is what must hold whatever happens: the server's view of each lease, and what its holder was told.
type model struct {
	mu      sync.Mutex
	locks   []*modelLock
	flights map[string]int
	faults  int // of 10 answers
	hang    bool
	healed  time.Time // when faults and hang last ended
	rnd     *rand.Rand
	bad     []string
}

type modelLock struct {
	watchdog.Lease
	m       *model
	spec    watchdog.Spec
	granted time.Time // when the last request that was granted was sent
	stopped time.Time
	home    string
	flying  bool
	in      bool // a callback is running
	removed bool
	losses  int
	told    bool // what Lost returned was called
}

func (m *model) wrong(format string, args ...any) {
	m.bad = append(m.bad, fmt.Sprintf(format, args...))
}

const modelBatch = 4

func (m *model) renew(ctx context.Context, b *watchdog.Batch) {
	m.mu.Lock()
	m.flights[b.Node]++
	if m.flights[b.Node] > watchdog.MaxInFlight {
		m.wrong("%d calls in flight", m.flights[b.Node])
	}
	if len(b.Leases) == 0 || len(b.Leases) > modelBatch {
		m.wrong("a batch of %d", len(b.Leases))
	}
	for _, l := range b.Leases {
		x := l.Holder().(*modelLock)
		if x.flying {
			m.wrong("a lease is in two calls at a time")
		}
		x.flying = true
		if !x.stopped.IsZero() && b.Sent.After(x.stopped) {
			m.wrong("renewed %v after its renewal was stopped", b.Sent.Sub(x.stopped))
		}
		if x.spec.Interval == 0 {
			m.wrong("renewed without an interval")
		}
		if !time.Now().Before(l.Deadline()) && !x.removed {
			m.wrong("renewed after its deadline")
		}
	}
	latency := time.Duration(m.rnd.IntN(20)) * time.Millisecond
	if m.hang && m.rnd.IntN(3) == 0 {
		latency = time.Hour
	}
	m.mu.Unlock()

	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.flights[b.Node]--
	for i, l := range b.Leases {
		x := l.Holder().(*modelLock)
		x.flying = false
		switch r := &b.Results[i]; {
		case ctx.Err() != nil:
			r.Err = ctx.Err()
		case x.home != b.Node:
			r.Outcome, r.Node = watchdog.Moved, x.home
		case m.rnd.IntN(10) < m.faults:
			r.Err = errDown
		case m.faults > 0 && m.rnd.IntN(100) == 0:
			r.Outcome = watchdog.Missing
		default:
			r.Outcome = watchdog.Renewed
			x.granted = b.Sent
		}
	}
}

func (x *modelLock) enter(what string) {
	x.m.mu.Lock()
	if x.in {
		x.m.wrong("%s while another callback was running", what)
	}
	if x.told {
		x.m.wrong("%s after what Lost returned", what)
	}
	x.in = true
}

func (x *modelLock) leave() {
	x.in = false
	x.m.mu.Unlock()
}

func (x *modelLock) Renewal(r watchdog.Renewal) {
	x.enter("Renewal")
	defer x.leave()
	if r.Attempt < 1 || r.Batch.Lag() < 0 || r.Remaining <= 0 || r.Elapsed < 0 {
		x.m.wrong("renewal %+v", r)
	}
}

func (x *modelLock) Lost(l watchdog.Loss) (tell func()) {
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	if x.losses > 0 {
		x.m.wrong("Lost twice")
	}
	if x.removed {
		x.m.wrong("Lost after Remove")
	}
	x.losses++
	early := time.Now().Before(x.Deadline())
	switch l.Cause {
	case telemetry.LossMissing:
	case telemetry.LossExpired:
		if early || x.spec.Interval > 0 && x.stopped.IsZero() {
			x.m.wrong("expired: early %v, stopped %v", early, x.stopped)
		}
	case telemetry.LossUnreachable:
		// What failed before the end of a fault may not have been tried again since.
		if peace := x.m.faults == 0 && !x.m.hang && time.Since(x.m.healed) > 8*time.Second; early || peace {
			x.m.wrong("unreachable: early %v, %+v", early, l)
		}
	default:
		x.m.wrong("lost: %+v", l)
	}
	return func() {
		x.enter("what Lost returned")
		defer x.leave()
		x.told = true
	}
}

func (x *modelLock) Alarm(now time.Time) (next time.Time, tell func()) {
	x.m.mu.Lock()
	defer x.m.mu.Unlock()
	if x.m.rnd.IntN(2) == 0 {
		next = now.Add(time.Duration(x.m.rnd.IntN(5000)) * time.Millisecond)
	}
	return next, func() {
		x.m.mu.Lock()
		defer x.m.mu.Unlock()
		if x.in {
			x.m.wrong("what Alarm returned while another callback was running")
		}
	}
}

// TestModel runs random histories in fake time against the model.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		kinds := rapid.SampledFrom([]string{
			"watch", "watch", "watch", "remove", "stop", "check", "verify", "move", "sleep", "sleep", "faults", "hang", "heal",
		})
		ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
			return op{kinds.Draw(t, "kind"), rapid.IntRange(0, 1000).Draw(t, "n"), time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond}
		}), 1, 150).Draw(rt, "ops")
		seed := rapid.Uint64().Draw(rt, "seed")
		var bad []string
		synctest.Test(t, func(t *testing.T) {
			m := &model{flights: map[string]int{}, rnd: rand.New(rand.NewPCG(seed, 1))}
			m.play(t, ops)
			bad = m.bad
		})
		if len(bad) > 0 {
			rt.Fatalf("%d things are wrong, first: %s", len(bad), bad[0])
		}
	})
}

func (m *model) play(t *testing.T, ops []op) {
	e := watchdog.New(watchdog.Config{BatchSize: modelBatch, Renew: m.renew, Panicked: func(v any, _ []byte) { m.wrong("panic %v", v) }})
	defer e.Close()
	for _, o := range ops {
		m.step(e, o)
		m.check(e)
	}
	// In peace everything that is left is renewed, by as few calls as it takes.
	m.step(e, op{kind: "heal"})
	sleep(e, 5*interval)
	m.check(e)
	if e.Stats().Leases == 0 && e.Stats().Ticking {
		m.wrong("ticking without leases")
	}
	for _, x := range m.locks {
		if x.live() && x.spec.Interval > 0 && x.stopped.IsZero() {
			if age := time.Since(x.granted); age > x.spec.Interval+20*time.Millisecond {
				m.wrong("not renewed for %v, interval %v", age, x.spec.Interval)
			}
		}
	}
	m.cohorts(e)
}

func (m *model) cohorts(e *watchdog.Engine) {
	type key struct {
		node     string
		interval time.Duration
	}
	per := map[key]int{}
	for _, x := range m.locks {
		if x.live() && x.spec.Interval > 0 && x.stopped.IsZero() {
			per[key{x.home, x.spec.Interval}]++
		}
	}
	want := 0
	for _, n := range per {
		want += ceil(n, modelBatch)
	}
	if got := e.Stats().Cohorts; got != want {
		m.wrong("%d cohorts in peace, want %d", got, want)
	}
}

func (x *modelLock) live() bool { return !x.removed && x.losses == 0 }

func (m *model) step(e *watchdog.Engine, o op) {
	if o.kind == "sleep" {
		sleep(e, o.kept)
		return
	}
	var x *modelLock
	if len(m.locks) > 0 {
		x = m.locks[o.n%len(m.locks)]
	}
	switch o.kind {
	case "watch":
		for range o.n%7 + 1 {
			m.watch(e, o)
		}
	case "faults":
		m.mu.Lock()
		if m.faults = o.n % 11; m.faults == 0 {
			m.healed = time.Now()
		}
		m.mu.Unlock()
	case "hang":
		m.mu.Lock()
		m.hang = true
		m.mu.Unlock()
	case "heal":
		m.mu.Lock()
		if m.faults > 0 || m.hang {
			m.healed = time.Now()
		}
		m.faults, m.hang = 0, false
		m.mu.Unlock()
		sleep(e, ttl) // what was failing has recovered or is lost
		synctest.Wait()
	}
	if x == nil {
		return
	}
	switch o.kind {
	case "remove":
		was := x.live()
		got := e.Remove(&x.Lease)
		m.mu.Lock()
		if got != was {
			m.wrong("Remove is %v", got)
		}
		x.removed = x.removed || got
		m.mu.Unlock()
	case "stop":
		if x.live() && x.stopped.IsZero() {
			e.StopRenewal(&x.Lease)
			m.mu.Lock()
			x.stopped = time.Now()
			m.mu.Unlock()
		}
	case "check":
		got := e.Check(&x.Lease)
		synctest.Wait()
		if got != x.live() {
			m.wrong("Check is %v", got)
		}
	case "verify":
		e.Verify(&x.Lease)
	case "move":
		m.mu.Lock()
		x.home = string(rune('a' + o.kept%3))
		m.mu.Unlock()
	}
	synctest.Wait()
}

func (m *model) watch(e *watchdog.Engine, o op) {
	x := &modelLock{m: m, home: string(rune('a' + o.n%2))}
	every := []time.Duration{interval, interval, interval / 2, 0}[o.n%4]
	x.granted = time.Now().Add(-o.kept / 100)
	x.spec = watchdog.Spec{TTL: ttl, Interval: every, Margin: margin * time.Duration(1+o.n%3), Node: x.home, Sent: x.granted, Holder: x, Alarm: time.Now().Add(o.kept - 5*time.Second)}
	m.locks = append(m.locks, x)
	e.Watch(&x.Lease, x.spec)
}

// check compares engine and model at rest.
func (m *model) check(e *watchdog.Engine) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, x := range m.locks {
		if !x.live() {
			continue
		}
		n++
		// An answer that is ignored (stopped) leaves the lease shorter than the server has it, never longer.
		trusted, granted := x.Deadline(), x.granted.Add(x.spec.TTL-x.spec.Margin)
		if trusted.After(granted) || x.stopped.IsZero() && !trusted.Equal(granted) && !x.flying {
			m.wrong("trusted %v longer than granted", trusted.Sub(granted))
		}
		if !time.Now().Before(trusted) {
			m.wrong("live %v after its deadline", time.Since(trusted))
		}
		if next := x.NextRenewal(); next.IsZero() != (x.spec.Interval == 0 || !x.stopped.IsZero()) {
			m.wrong("the next renewal is at %v", next)
		}
	}
	if got := e.Stats().Leases; got != n {
		m.wrong("%d leases, want %d", got, n)
	}
}

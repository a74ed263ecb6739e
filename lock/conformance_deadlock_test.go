package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// deadlocks is the suite of the wait graph: each client that is part of a deadlock reports it, and no client reports
// one where there is none. It runs over a fake, and on a Cluster, where each client's waits are at another node.
var deadlocks = theme{"deadlock", deadlockBehaviours()}

// deadlockToldWithin is the time after the wait that closes a cycle in which every client of the cycle has to report
// it.
const deadlockToldWithin = 3 * time.Second

// tangle is jobs that hold locks and wait for others. Each has a client of its own, that reports to a scope of its own.
type tangle struct {
	t    *testing.T
	w    *world
	jobs []*job
}

type job struct {
	*lock.Client
	*scope
	outer *lock.Lease
	got   <-chan taken
	stop  context.CancelFunc
}

func newTangle(t *testing.T, w *world, jobs int, opts ...lock.Option) *tangle {
	g := &tangle{t: t, w: w}
	for range jobs {
		s := newScope(t)
		// The world's leases are short, and a busy machine loses them; none has to end here, unless a scene says so.
		all := []lock.Option{lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter), lock.WithLogger(s.log), lock.WithLease(lock.DefaultLease)}
		g.jobs = append(g.jobs, &job{Client: w.client(append(all, opts...)...), scope: s})
	}
	return g
}

// holds has a job take a lock.
func (g *tangle) holds(i int, m lock.Locker) *lock.Lease {
	g.t.Helper()
	j := g.jobs[i]
	l, err := m.Lock(j.carrying())
	must(g.t, "Lock", err)
	g.t.Cleanup(func() { _ = l.Release(context.Background()) })
	j.outer = l
	return l
}

// carrying is a ctx of what the job holds.
func (j *job) carrying() context.Context {
	if j.outer == nil {
		return context.Background()
	}
	return j.outer.Context()
}

// holdEach has each of the jobs take a lock of its own, lock-<i>, in this order.
func (g *tangle) holdEach(jobs ...int) {
	g.t.Helper()
	for _, i := range jobs {
		g.holds(i, g.jobs[i].Mutex(fmt.Sprint("lock-", i)))
		time.Sleep(2 * time.Millisecond) // a token is Redis's time
	}
}

// awaits has a job wait for the lock of another one.
func (g *tangle) awaits(i, other int, opts ...lock.LockOption) {
	g.t.Helper()
	g.waits(i, g.jobs[i].Mutex(fmt.Sprint("lock-", other), opts...))
}

// waits has a job wait for a lock in the ctx of what it holds.
func (g *tangle) waits(i int, m lock.Locker) {
	g.t.Helper()
	before := 0
	for _, l := range g.jobs[i].Leases() {
		if l.State == lock.StateWaiting {
			before++
		}
	}
	g.asks(i, m)
	waiting(g.t, g.jobs[i].Client, before+1)
}

// asks has a job ask for a lock in the ctx of what it holds. On a busy machine it may be free by then.
func (g *tangle) asks(i int, m lock.Locker) {
	g.t.Helper()
	j := g.jobs[i]
	ctx, stop := context.WithCancel(j.carrying())
	got, ended := make(chan taken, 1), make(chan struct{})
	go func() {
		defer close(ended)
		l, err := m.Lock(ctx)
		got <- taken{l, err}
	}()
	j.got, j.stop = got, stop
	g.t.Cleanup(func() {
		stop()
		<-ended
		select {
		case v := <-got:
			if v.err == nil {
				_ = v.Release(context.Background())
			}
		default: // the test has it
		}
	})
}

// told returns how many deadlocks the job's client has logged, and checks that its metric counts no fewer.
func (j *job) told(t *testing.T) int {
	n := len(j.records(t, telemetry.LogDeadlock))
	if n > 0 {
		if counted := int(j.sum(t, telemetry.MetricDeadlocks)); counted < n {
			t.Errorf("%d deadlocks logged, %d counted", n, counted)
		}
	}
	return n
}

// calmly returns a condition that asks cond ten times a second at most, and repeats the last result in between, first
// at the beginning. Reading logs and running scripts take a while, and many tests run at a time.
func calmly(first bool, cond func() bool) func() bool {
	last, result := time.Time{}, first
	return func() bool {
		if time.Since(last) >= 100*time.Millisecond {
			last, result = time.Now(), cond()
		}
		return result
	}
}

// allTold waits until each of the jobs has told of its deadlock, and reports how long that took.
func (g *tangle) allTold(jobs ...int) {
	g.t.Helper()
	began := time.Now()
	eventually(g.t, patience, calmly(false, func() bool {
		return !slices.ContainsFunc(jobs, func(i int) bool { return g.jobs[i].told(g.t) == 0 })
	}))
	took := time.Since(began)
	g.t.Logf("told after %v", took)
	if took > deadlockToldWithin && !g.w.busy() {
		g.t.Errorf("told after %v", took)
	}
}

// busy reports whether the machine may be too busy for the world's times: it isn't where time is fake.
func (w *world) busy() bool { return w.prefix != "app:" }

// nobodyTells makes sure that no job tells of a deadlock for a while.
func (g *tangle) nobodyTells(d time.Duration) {
	g.t.Helper()
	always(g.t, d, calmly(true, func() bool { return !slices.ContainsFunc(g.jobs, func(j *job) bool { return j.told(g.t) > 0 }) }))
	for i, j := range g.jobs {
		if told, counted := j.told(g.t), j.sum(g.t, telemetry.MetricDeadlocks); told > 0 || counted > 0 {
			g.t.Errorf("job %d: %d deadlocks logged, %v counted", i, told, counted)
		}
	}
}

// ring has n jobs hold one lock each, and wait for that of the next; the last one closes the ring.
func ring(t *testing.T, w *world, n int) *tangle {
	g := newTangle(t, w, n)
	g.holdEach(slices.Collect(upTo(n))...)
	for i := range n {
		g.awaits(i, (i+1)%n)
	}
	return g
}

func deadlockBehaviours() (all []behaviour) {
	add := func(name string, test func(t *testing.T, w *world)) {
		all = append(all, behaviour{name: name, test: test})
	}
	addTimed := func(name string, test func(t *testing.T, w *world)) {
		all = append(all, behaviour{name: name, test: test, timed: true})
	}
	add("told/3 clients", func(t *testing.T, w *world) { checkTold(t, ring(t, w, 3)) })
	for name, pair := range tangledPairs {
		add("told/"+name, func(t *testing.T, w *world) {
			g := newTangle(t, w, 2)
			pair(g)
			g.allTold(0, 1)
		})
	}
	add("told/one client", toldOfOneClient)
	addTimed("told/one waits for long already", toldLate)
	addTimed("told/after FLUSHALL of the graph", toldAfterLoss)
	add("broken/the last granted of those that ask for it", brokenLast)
	add("broken/a Multi", brokenMulti)
	for name, scene := range notTangled {
		addTimed("none/"+name, func(t *testing.T, w *world) {
			d, quiet := scene(t, w), 6*time.Second
			if w.busy() { // time that all shapes take
				quiet = deadlockToldWithin + time.Second/2
			}
			d.nobodyTells(quiet)
		})
	}
	return all
}

func upTo(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// checkTold looks at what each of the jobs in a ring tells, and that it does so once.
func checkTold(t *testing.T, g *tangle) {
	t.Helper()
	n := len(g.jobs)
	g.allTold(slices.Collect(upTo(n))...)
	always(t, 2*time.Second, calmly(true, func() bool { return !slices.ContainsFunc(g.jobs, func(j *job) bool { return j.told(t) != 1 }) }))
	for i, j := range g.jobs {
		r := j.records(t, telemetry.LogDeadlock)[0]
		text := fmt.Sprint(r["cycle"])
		for _, other := range g.jobs {
			if !strings.Contains(text, other.outer.Owner()) || !strings.Contains(text, fmt.Sprintf("%q", other.outer.Name())) {
				t.Errorf("%d: %s doesn't name %s of %s", i, text, other.outer.Owner(), other.outer.Name())
			}
		}
		if strings.Count(text, "(trace ") != n || r["broken"] != false || r["name"] != fmt.Sprint("lock-", (i+1)%n) {
			t.Errorf("%d: %v", i, r)
		}
		if got := j.sum(t, telemetry.MetricDeadlocks); got != 1 {
			t.Errorf("%d: counted %v: %v", i, got, j.series(t, telemetry.MetricDeadlocks))
		}
		j.stop() // until then it waits on
		if got := await(t, "Lock", j.got); !errors.Is(got.err, context.Canceled) || errors.Is(got.err, lock.ErrDeadlock) {
			t.Errorf("%d: %v", i, got.err)
		}
		events := 0
		for _, span := range j.spans.GetSpans() {
			for _, e := range span.Events {
				if e.Name == telemetry.EventDeadlock.Name {
					events++
				}
			}
		}
		if events != 1 {
			t.Errorf("%d: %d events", i, events)
		}
	}
}

// tangledPairs tie two jobs up with locks of all kinds that are followed.
var tangledPairs = map[string]func(g *tangle){
	"fair and mutex": func(g *tangle) {
		g.holds(0, g.jobs[0].FairMutex("a"))
		g.holds(1, g.jobs[1].Mutex("b"))
		g.waits(0, g.jobs[0].FairMutex("b"))
		g.waits(1, g.jobs[1].FairMutex("a"))
	},
	"a writer and one of its readers": func(g *tangle) {
		g.holds(0, g.jobs[0].RWMutex("a").RLocker())
		l := try(g.t, g.jobs[1].RWMutex("a").RLocker())
		g.t.Cleanup(func() { _ = l.Release(context.Background()) })
		g.holds(1, g.jobs[1].Mutex("b"))
		g.waits(1, g.jobs[1].RWMutex("a"))
		g.waits(0, g.jobs[0].Mutex("b"))
	},
	"a reader and the writer": func(g *tangle) {
		g.holds(0, g.jobs[0].RWMutex("a"))
		g.holds(1, g.jobs[1].RWMutex("b"))
		g.waits(0, g.jobs[0].RWMutex("b").RLocker())
		g.waits(1, g.jobs[1].RWMutex("a").RLocker())
	},
	"the outermost lease of several": func(g *tangle) {
		g.holdEach(0, 1)
		g.holds(0, g.jobs[0].Mutex("y"))
		g.holds(1, g.jobs[1].Mutex("z"))
		g.awaits(0, 1)
		g.awaits(1, 0)
	},
	"a lease that another follows": func(g *tangle) {
		g.holdEach(0, 1)
		ctx := g.jobs[0].outer.Context()
		g.jobs[0].outer = nil
		g.awaits(0, 1, lock.WithLifetime(ctx))
		g.asks(1, g.jobs[1].Mutex("lock-0"))
	},
}

// A client whose wait is old searches rarely, but other clients notify it of a cycle that a new wait closes.
func toldLate(t *testing.T, w *world) {
	g := newTangle(t, w, 3)
	g.holdEach(0, 1, 2)
	g.awaits(0, 1)
	g.awaits(1, 2)
	time.Sleep(4600 * time.Millisecond)
	g.awaits(2, 0)
	g.allTold(0, 1, 2)
}

// A deadlock among goroutines of one client is one, too.
func toldOfOneClient(t *testing.T, w *world) {
	g := newTangle(t, w, 1)
	j := g.jobs[0]
	a := g.holds(0, j.Mutex("a"))
	j.outer = nil
	g.holds(0, j.Mutex("b"))
	g.waits(0, j.Mutex("a"))
	j.outer = a
	g.waits(0, j.Mutex("b"))
	eventually(t, patience, calmly(false, func() bool { return j.told(t) == 2 }))
}

// A wait whose record was deleted from Redis is written again, and found.
func toldAfterLoss(t *testing.T, w *world) {
	g := newTangle(t, w, 2)
	g.holdEach(0, 1)
	g.awaits(0, 1)
	isGraph := func(key string) bool { return strings.Contains(key, "lockdog:waits:") }
	eventually(t, patience, func() bool { return slices.ContainsFunc(w.raw.keys(), isGraph) })
	keys := w.raw.keys()
	w.raw.del(keys[slices.IndexFunc(keys, isGraph)])
	g.awaits(1, 0)
	g.allTold(0, 1)
}

// Of the waits with WithDeadlockBreaking, the one that carries the youngest lease fails. All others go on.
func brokenLast(t *testing.T, w *world) {
	const n, victim = 3, 0
	g := newTangle(t, w, n)
	g.holdEach(1, 0, 2)
	g.awaits(0, 1, lock.WithDeadlockBreaking())
	g.awaits(1, 2, lock.WithDeadlockBreaking())
	g.awaits(2, 0)
	v := g.jobs[victim]
	got := await(t, "the victim's Lock", v.got)
	var e *lock.DeadlockError
	if !errors.As(got.err, &e) || !errors.Is(got.err, lock.ErrDeadlock) || errors.Is(got.err, lock.ErrHeld) {
		t.Fatalf("%v", got.err)
	}
	if e.Name != "lock-1" || len(e.Cycle) != n || !strings.Contains(e.Error(), e.Name) {
		t.Errorf("%+v: %v", e, e)
	}
	for i, wait := range e.Cycle {
		next := e.Cycle[(i+1)%n]
		if wait.Name != next.HoldsName || wait.TraceID == "" || wait.Since.IsZero() || wait.ClientID == "" || wait.Owner == "" {
			t.Errorf("%+v before %+v", wait, next)
		}
		if !slices.ContainsFunc(g.jobs, func(j *job) bool { return j.outer.Owner() == wait.HoldsOwner && j.outer.Name() == wait.HoldsName }) {
			t.Errorf("who is %+v", wait)
		}
	}
	if r := v.records(t, telemetry.LogDeadlock); len(r) != 1 || r[0]["broken"] != true {
		t.Errorf("%v", r)
	}
	free(t, v.outer)
	for _, i := range []int{2, 1} { // once the victim has released what it holds
		j := g.jobs[i]
		free(t, granted(t, j.got))
		free(t, j.outer)
		for _, r := range j.records(t, telemetry.LogDeadlock) {
			if r["broken"] != false {
				t.Errorf("%d: %v", i, r)
			}
		}
	}
}

// A Multi that waits holds the names it has so far, though no ctx carries them. When it is the victim, Lock fails and
// has released these names.
func brokenMulti(t *testing.T, w *world) {
	g := newTangle(t, w, 2)
	g.holds(1, g.jobs[1].Mutex("b"))
	g.waits(0, g.jobs[0].Multi([]string{"a", "b"}, lock.WithDeadlockBreaking()))
	eventually(t, patience, func() bool { return second(g.jobs[1].Mutex("a").TryLock(t.Context())) != nil })
	g.waits(1, g.jobs[1].Mutex("a"))
	var e *lock.DeadlockError
	if got := await(t, "the Multi", g.jobs[0].got); !errors.As(got.err, &e) || e.Name != "b" {
		t.Fatalf("%v", got.err)
	}
	free(t, granted(t, g.jobs[1].got))
}

// notTangled are scenes that look a little like a deadlock. More of them are told apart by waitgraph.TestGraph_Cycles.
var notTangled = map[string]func(t *testing.T, w *world) *tangle{
	"waits in one order": func(t *testing.T, w *world) *tangle {
		g := newTangle(t, w, 3)
		g.holdEach(0, 1)
		g.awaits(1, 0)
		g.awaits(2, 1)
		return g
	},
	"readers among readers": func(t *testing.T, w *world) *tangle { // the one waits for the writer that waits before it, which is no holder
		g := newTangle(t, w, 3)
		g.holds(0, g.jobs[0].RWMutex("a").RLocker())
		g.holds(1, g.jobs[1].Mutex("b"))
		g.waits(2, g.jobs[2].RWMutex("a"))
		eventually(t, patience, func() bool { // the writer has its place in Redis
			l, err := g.jobs[1].RWMutex("a").RLocker().TryLock(t.Context())
			if err == nil {
				free(t, l)
			}
			return err != nil
		})
		g.waits(1, g.jobs[1].RWMutex("a").RLocker())
		g.waits(0, g.jobs[0].Mutex("b"))
		return g
	},
	"WithWait that ends": func(t *testing.T, w *world) *tangle {
		g := newTangle(t, w, 2)
		g.holdEach(0, 1)
		g.awaits(0, 1, lock.WithWait(1200*time.Millisecond))
		g.awaits(1, 0)
		return g
	},
	"a lease that ended": func(t *testing.T, w *world) *tangle {
		g := newTangle(t, w, 2)
		g.holds(0, g.jobs[0].Mutex("lock-0", lock.WithFixedLease(1200*time.Millisecond)))
		g.holdEach(1)
		ctx := context.WithoutCancel(g.jobs[0].outer.Context())
		g.jobs[0].outer = nil
		g.awaits(0, 1, lock.WithLifetime(ctx))
		g.awaits(1, 0)
		return g
	},
	"a ctx without the lease": func(t *testing.T, w *world) *tangle {
		g := newTangle(t, w, 2)
		g.holdEach(0, 1)
		g.jobs[0].outer = nil
		g.awaits(0, 1)
		g.awaits(1, 0)
		return g
	},
}

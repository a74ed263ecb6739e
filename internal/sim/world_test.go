package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

const (
	procs   = 3
	workers = 2               // of each process
	strikes = 2               // faults, one after the other
	calm    = 8 * time.Second // that follows: mostly longer than the patience after a fault
	term    = 2 * time.Second // a lease; agentTerm in a world with an agent
	idle    = 100 * time.Millisecond
	permits = 2
)

// A world is one run.
type world struct {
	t     *testing.T
	redis *redistest.Fake
	agent *node         // nil: there is none
	term  time.Duration // a lease
	start time.Time
	locks []*watched

	granted chan *proc    // of a new lease, if somebody receives
	calm    chan struct{} // closed after the last fault
	done    chan struct{} // closed when the calm has lasted

	mu       sync.Mutex
	procs    []*proc
	faults   []*span // those that have begun
	events   strings.Builder
	violated bool
}

// A proc stands for a process: a client with a network of its own.
type proc struct {
	id     int
	wire   *redistest.Proxy
	link   *redistest.Proxy // to the agent; nil: there is none
	client atomic.Pointer[lock.Client]
}

// A span is when a fault was there.
type span struct {
	from, to time.Time // to is zero while it lasts
	loses    bool      // locks, from under their holders
}

// kinds are those of which a world has one, beside a Mutex. With more locks there would be less contention for each.
var kinds = []string{"mutex", "fair", "rw", "multi", "semaphore"}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	w := &world{
		t: t, redis: redistest.StartFake(t), term: term, start: time.Now(),
		granted: make(chan *proc), calm: make(chan struct{}), done: make(chan struct{}),
	}
	for _, kind := range []string{"mutex", kinds[rng.IntN(len(kinds))]} {
		w.locks = append(w.locks, &watched{
			w: w, kind: kind, name: fmt.Sprint(kind, len(w.locks)), held: map[*lock.Lease]*holder{}, waiting: map[string]bool{},
		})
	}
	if rng.IntN(3) == 0 {
		w.term = agentTerm
		w.agent = &node{w: w, wire: redistest.NewProxy(t, w.redis.Addr()), socket: redistest.NewSocket(t)}
		w.agent.start()
	}
	for i := range procs {
		p := &proc{id: i, wire: redistest.NewProxy(t, w.redis.Addr())}
		if w.agent != nil {
			p.link = redistest.NewProxy(t, w.agent.socket.Path())
		}
		p.client.Store(w.open(p))
		w.procs = append(w.procs, p)
	}
	w.ensurePermits()
	return w
}

func (w *world) open(p *proc) *lock.Client {
	opts := []lock.Option{lock.WithLease(w.term), lock.WithLogger(quiet)}
	if p.link != nil {
		opts = append(opts, lock.WithAgent(p.link.Addr()))
	}
	c, err := lock.New(w.dial(p.wire), opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// dial returns a client of go-redis that reaches Redis over a network.
func (w *world) dial(wire *redistest.Proxy) *redis.Client {
	return w.redis.Client(w.t, func(o *redis.Options) {
		o.Dialer, o.ReadTimeout, o.WriteTimeout = wire.Dial, time.Second, time.Second
	})
}

// closeSoon closes a client without waiting for what it holds.
func closeSoon(c *lock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_ = c.Close(ctx) // says what it held
}

// note adds a line to what is printed of a run that is violated.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.events, "%10.3f  %s\n", time.Since(w.start).Seconds(), fmt.Sprintf(format, args...))
}

func (w *world) violation(format string, args ...any) {
	w.note("VIOLATED: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violated = true
}

// since are the faults that were there at a time or later. mu must be held.
func (w *world) since(from time.Time) (faults []*span) {
	for _, s := range w.faults {
		if s.to.IsZero() || !s.to.Before(from) {
			faults = append(faults, s)
		}
	}
	return faults
}

// excused reports whether Redis may have lost what it had granted within the last lease.
func (w *world) excused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.since(time.Now().Add(-w.term)), func(s *span) bool { return s.loses })
}

// patience is for how long a lock may have waited that is idle since then.
func (w *world) patience(since time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	faults := w.since(since.Add(-w.term))
	if len(faults) == 0 {
		return idle
	}
	patience := idle + w.term + 2*time.Second // the ReadTimeout, twice
	for _, s := range faults {
		end := s.to
		if end.IsZero() {
			end = time.Now()
		}
		patience += end.Sub(s.from)
	}
	return patience
}

// run lets workers work while faults come, and then once more.
func (w *world) run(rng *rand.Rand) {
	ctx, stop := context.WithCancel(context.Background())
	var work, watch sync.WaitGroup
	for _, p := range w.procs {
		for i := range workers {
			worker := &worker{w: w, p: p, id: fmt.Sprintf("%d.%d", p.id, i), rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
			work.Go(func() { worker.run() })
		}
	}
	for _, l := range w.locks {
		watch.Go(func() { l.watch(ctx) })
	}
	w.inject(rng)
	close(w.calm)
	time.Sleep(calm)
	close(w.done)
	work.Wait()
	stop()
	watch.Wait()
	for _, p := range w.procs {
		closeSoon(p.client.Load())
	}
	if w.agent != nil {
		w.agent.end(context.Background())
	}
}

// A watched lock knows who holds it, as its holders do.
type watched struct {
	w          *world
	kind, name string

	mu      sync.Mutex
	held    map[*lock.Lease]*holder
	token   int64
	waiting map[string]bool // workers
}

type holder struct {
	who    string
	shared bool
	over   bool // it has been released, or its Context has ended
}

// locker is the lock as a client has it.
func (l *watched) locker(c *lock.Client, rng *rand.Rand, opts ...lock.LockOption) (k lock.Locker, shared bool) {
	switch l.kind {
	case "fair":
		return c.FairMutex(l.name, opts...), false
	case "rw":
		if rng.IntN(2) == 0 {
			return c.RWMutex(l.name, opts...).RLocker(), true
		}
		return c.RWMutex(l.name, opts...), false
	case "multi":
		return c.Multi([]string{l.name + "a", l.name + "b"}, opts...), false
	case "semaphore":
		return c.Semaphore(l.name, opts...), true
	}
	return c.Mutex(l.name, opts...), false
}

// granted checks a grant against what else is held.
func (l *watched) granted(lease *lock.Lease, who string, shared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	excused := l.w.excused()
	live := 0
	for other, h := range l.held {
		if h.over || other.Context().Err() != nil || shared && h.shared && l.kind == "rw" {
			continue
		}
		if live++; lease.Context().Err() == nil && (l.kind != "semaphore" || live >= permits) && !excused {
			l.w.violation("%s: %s and %s hold it at one time", l.name, h.who, who)
		}
	}
	// Those who share it are told of their grants in any order.
	if token := lease.Token(); token <= l.token && !shared && !excused && lease.Context().Err() == nil {
		l.w.violation("%s: %s has token %d, after %d", l.name, who, token, l.token)
	}
	l.token = max(l.token, lease.Token())
	l.held[lease] = &holder{who: who, shared: shared}
}

// over notes that a holder believes in its lease no longer. Redis may hold it for a lease more.
func (l *watched) over(lease *lock.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[lease].over = true
}

// gone notes that the lease has ended in Redis, too.
func (l *watched) gone(lease *lock.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, lease)
}

func (l *watched) waits(who string, yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if yes {
		l.waiting[who] = true
	} else {
		delete(l.waiting, who)
	}
}

// watch looks for a lock that nobody has and somebody waits for.
func (l *watched) watch(ctx context.Context) {
	since := time.Now()
	for ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		l.mu.Lock()
		if len(l.held) > 0 || len(l.waiting) == 0 {
			since = time.Now()
		} else if waited := time.Since(since); waited > l.w.patience(since) {
			l.w.violation("%s: nobody has held it for %v, and these wait: %v", l.name, waited, l.waiting)
			since = time.Now()
		}
		l.mu.Unlock()
	}
}

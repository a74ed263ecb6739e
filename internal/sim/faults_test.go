package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

// A fault begins, and returns how it ends; nil: it is over at once.
type fault struct {
	name  string
	loses bool // locks, from under their holders
	begin func(w *world, p *proc, rng *rand.Rand) (end func())
}

// onWire is a fault of a process's network. What it held is delivered after all.
func onWire(rule func(rng *rand.Rand) redistest.Rule) func(*world, *proc, *rand.Rand) func() {
	return func(_ *world, p *proc, rng *rand.Rand) func() {
		p.wire.SetRule(rule(rng))
		return func() {
			p.wire.SetRule(nil)
			p.wire.Release()
		}
	}
}

// late delays what goes in a direction. The fault is over when the last of that has arrived.
func late(d redistest.Direction) func(*world, *proc, *rand.Rand) func() {
	return func(_ *world, p *proc, rng *rand.Rand) func() {
		by := time.Duration(1+rng.IntN(3000)) * time.Millisecond
		p.wire.SetRule(redistest.When(d, redistest.Delay(by)))
		return func() {
			p.wire.SetRule(nil)
			time.Sleep(by)
		}
	}
}

// all gives a verdict to all that goes in a direction and satisfies the conditions.
func all(d redistest.Direction, v redistest.Verdict, conditions ...func(redistest.Chunk) bool) func(*rand.Rand) redistest.Rule {
	return func(*rand.Rand) redistest.Rule { return redistest.When(d, v, conditions...) }
}

// cutAfterwards resets the connections at a fault's end: what follows a dropped chunk would be dropped, too.
func cutAfterwards(begin func(*world, *proc, *rand.Rand) func()) func(*world, *proc, *rand.Rand) func() {
	return func(w *world, p *proc, rng *rand.Rand) func() {
		end := begin(w, p, rng)
		return func() {
			end()
			p.wire.CutAll()
		}
	}
}

var faults = []fault{
	{"requests are late", false, late(redistest.Up)},
	{"replies and messages are late", false, late(redistest.Down)},
	{"requests vanish", false, cutAfterwards(onWire(all(redistest.Up, redistest.Drop)))},
	{"replies and messages vanish", false, cutAfterwards(onWire(all(redistest.Down, redistest.Drop)))},
	{"requests are held, then delivered", false, onWire(all(redistest.Up, redistest.Hold))},
	{"replies and messages are held, then delivered", false, onWire(all(redistest.Down, redistest.Hold))},
	{"every third request is cut", false, onWire(third(redistest.Up))},
	{"every third reply is cut", false, onWire(third(redistest.Down))},
	{"messages are cut", false, onWire(all(redistest.Down, redistest.Cut, redistest.Contains("message")))},
	{"all connections are reset", false, func(_ *world, p *proc, _ *rand.Rand) func() {
		p.wire.CutAll()
		return nil
	}},
	{"the client is closed and another opened", false, func(w *world, p *proc, _ *rand.Rand) func() {
		old := p.client.Swap(w.open(p))
		closeSoon(old)
		return nil
	}},
	{"Redis hangs", false, func(w *world, _ *proc, _ *rand.Rand) func() {
		w.redis.Pause(w.t)
		return func() { w.redis.Resume(w.t) }
	}},
	{"Redis restarts", false, func(w *world, _ *proc, _ *rand.Rand) func() {
		w.redis.Restart(w.t, redistest.KeepData)
		return nil
	}},
	{"Redis restarts without its data", true, func(w *world, _ *proc, _ *rand.Rand) func() {
		w.redis.Restart(w.t, redistest.LoseData)
		w.ensurePermits()
		return nil
	}},
	{"Redis refuses", false, func(w *world, _ *proc, rng *rand.Rand) func() {
		text := []string{"LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica."}[rng.IntN(2)]
		w.redis.SetRefusal(func(cmd string, _ ...string) string {
			if cmd == "EVALSHA" || cmd == "EVAL" {
				return text
			}
			return ""
		})
		return func() { w.redis.SetRefusal(nil) }
	}},
	{"the keys are deleted", true, func(w *world, _ *proc, _ *rand.Rand) func() {
		rdb := w.redis.Client(w.t)
		defer func() { _ = rdb.Close() }()
		for _, l := range w.locks {
			for _, name := range []string{l.name, l.name + "a", l.name + "b"} {
				if l.kind != "semaphore" {
					rdb.Del(context.Background(), name)
				}
			}
		}
		return nil
	}},
}

// third cuts the connection at every third chunk of a direction.
func third(d redistest.Direction) func(*rand.Rand) redistest.Rule {
	return func(rng *rand.Rand) redistest.Rule {
		seen := rng.IntN(3)
		return redistest.When(d, redistest.Cut, func(redistest.Chunk) bool {
			seen++
			return seen%3 == 0
		})
	}
}

// ensurePermits gives the semaphores their permits.
func (w *world) ensurePermits() {
	for _, l := range w.locks {
		if l.kind == "semaphore" {
			_ = w.procs[0].client.Load().Semaphore(l.name).EnsurePermits(context.Background(), permits) // else there are none, and a worker tells
		}
	}
}

// inject has faults come and go.
func (w *world) inject(rng *rand.Rand) {
	for range strikes {
		time.Sleep(time.Duration(200+rng.IntN(2000)) * time.Millisecond)
		f, p := faults[rng.IntN(len(faults))], w.procs[rng.IntN(len(w.procs))]
		select {
		case p = <-w.granted: // a lease is most at risk when it is new
		case <-time.After(calm): // nobody gets any
		}
		time.Sleep(time.Duration(rng.IntN(3)*rng.IntN(50)) * time.Millisecond)
		w.note("fault: %s (process %d)", f.name, p.id)
		s := w.began(f)
		over := f.begin(w, p, rng)
		if over != nil {
			time.Sleep(time.Duration(100+rng.IntN(3000)) * time.Millisecond)
			over()
		}
		w.ended(s)
		w.note("fault over")
	}
}

func (w *world) began(f fault) *span {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &span{from: time.Now(), loses: f.loses}
	w.faults = append(w.faults, s)
	return s
}

func (w *world) ended(s *span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.to = time.Now()
}

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

// A fault begins, and returns how it ends; nil: it is over at once. It has either onWire or begin.
type fault struct {
	name   string
	loses  bool // locks, from under their holders
	agent  bool // it is the agent's; there must be one
	onWire func(wire *redistest.Proxy, rng *rand.Rand) (end func())
	begin  func(w *world, p *proc, rng *rand.Rand) (end func())
}

// ruled makes a network follow a rule. What it held is delivered after all.
func ruled(rule func(rng *rand.Rand) redistest.Rule) func(*redistest.Proxy, *rand.Rand) func() {
	return func(wire *redistest.Proxy, rng *rand.Rand) func() {
		wire.SetRule(rule(rng))
		return func() {
			wire.SetRule(nil)
			wire.Release()
		}
	}
}

// late delays what goes in a direction. The fault is over when the last of that has arrived.
func late(d redistest.Direction) func(*redistest.Proxy, *rand.Rand) func() {
	return func(wire *redistest.Proxy, rng *rand.Rand) func() {
		by := time.Duration(1+rng.IntN(3000)) * time.Millisecond
		wire.SetRule(redistest.When(d, redistest.Delay(by)))
		return func() {
			wire.SetRule(nil)
			time.Sleep(by)
		}
	}
}

// all gives a verdict to all that goes in a direction and satisfies the conditions.
func all(d redistest.Direction, v redistest.Verdict, conditions ...func(redistest.Chunk) bool) func(*rand.Rand) redistest.Rule {
	return func(*rand.Rand) redistest.Rule { return redistest.When(d, v, conditions...) }
}

// cutAfterwards resets the connections at a fault's end: what follows a dropped chunk would be dropped, too.
func cutAfterwards(begin func(*redistest.Proxy, *rand.Rand) func()) func(*redistest.Proxy, *rand.Rand) func() {
	return func(wire *redistest.Proxy, rng *rand.Rand) func() {
		end := begin(wire, rng)
		return func() {
			end()
			wire.CutAll()
		}
	}
}

var faults = []fault{
	{name: "requests are late", onWire: late(redistest.Up)},
	{name: "replies and messages are late", onWire: late(redistest.Down)},
	{name: "requests vanish", onWire: cutAfterwards(ruled(all(redistest.Up, redistest.Drop)))},
	{name: "replies and messages vanish", onWire: cutAfterwards(ruled(all(redistest.Down, redistest.Drop)))},
	{name: "requests are held, then delivered", onWire: ruled(all(redistest.Up, redistest.Hold))},
	{name: "replies and messages are held, then delivered", onWire: ruled(all(redistest.Down, redistest.Hold))},
	{name: "every third request is cut", onWire: ruled(third(redistest.Up))},
	{name: "every third reply is cut", onWire: ruled(third(redistest.Down))},
	{name: "messages are cut", onWire: ruled(all(redistest.Down, redistest.Cut, redistest.Contains("message")))},
	{name: "all connections are reset", onWire: func(wire *redistest.Proxy, _ *rand.Rand) func() {
		wire.CutAll()
		return nil
	}},
	{name: "the client is closed and another opened", begin: func(w *world, p *proc, _ *rand.Rand) func() {
		old := p.client.Swap(w.open(p))
		closeSoon(old)
		return nil
	}},
	{name: "Redis hangs", begin: func(w *world, _ *proc, _ *rand.Rand) func() {
		w.redis.Pause(w.t)
		return func() { w.redis.Resume(w.t) }
	}},
	{name: "Redis restarts", begin: func(w *world, _ *proc, _ *rand.Rand) func() {
		w.redis.Restart(w.t, redistest.KeepData)
		return nil
	}},
	{name: "Redis restarts without its data", loses: true, begin: func(w *world, _ *proc, _ *rand.Rand) func() {
		w.redis.Restart(w.t, redistest.LoseData)
		w.ensurePermits()
		return nil
	}},
	{name: "Redis refuses", begin: func(w *world, _ *proc, rng *rand.Rand) func() {
		text := []string{"LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica."}[rng.IntN(2)]
		w.redis.SetRefusal(func(cmd string, _ ...string) string {
			if cmd == "EVALSHA" || cmd == "EVAL" {
				return text
			}
			return ""
		})
		return func() { w.redis.SetRefusal(nil) }
	}},
	{name: "the keys are deleted", loses: true, begin: func(w *world, _ *proc, _ *rand.Rand) func() {
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
	{name: "the agent ends, and another starts", agent: true, begin: func(w *world, _ *proc, _ *rand.Rand) func() {
		w.agent.socket.Refuse()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		w.agent.end(ended)
		return w.agent.start
	}},
	{name: "the agent is replaced", agent: true, begin: func(w *world, _ *proc, _ *rand.Rand) func() {
		old := *w.agent
		w.agent.start()
		old.end(context.Background())
		return nil
	}},
	{name: "the agent hangs", agent: true, begin: func(w *world, _ *proc, _ *rand.Rand) func() {
		for _, p := range w.procs {
			p.link.SetRule(func(redistest.Chunk) redistest.Verdict { return redistest.Hold })
		}
		return func() {
			for _, p := range w.procs {
				p.link.SetRule(nil)
				p.link.Release()
			}
		}
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
		f := faults[rng.IntN(len(faults))]
		for f.agent && w.agent == nil {
			f = faults[rng.IntN(len(faults))]
		}
		p := w.procs[rng.IntN(len(w.procs))]
		select {
		case p = <-w.granted: // a lease is most at risk when it is new
		case <-time.After(calm): // nobody gets any
		}
		time.Sleep(time.Duration(rng.IntN(3)*rng.IntN(50)) * time.Millisecond)
		w.strike(f, p, rng)
	}
}

// strike has one fault come and go. One of the agent, or on the way to it, excuses nothing.
func (w *world) strike(f fault, p *proc, rng *rand.Rand) {
	where, excuses := fmt.Sprint("process ", p.id), !f.agent
	begin := func() (end func()) { return f.begin(w, p, rng) }
	if f.onWire != nil {
		wire := p.wire
		if w.agent != nil {
			switch rng.IntN(3) {
			case 0:
				wire, where, excuses = p.link, fmt.Sprintf("process %d to agent", p.id), false
			case 1:
				wire, where, excuses = w.agent.wire, "agent to Redis", false
			}
		}
		begin = func() (end func()) { return f.onWire(wire, rng) }
	}
	w.note("fault: %s (%s)", f.name, where)
	if excuses {
		defer w.ended(w.began(f))
	}
	if over := begin(); over != nil {
		length := time.Duration(100+rng.IntN(3000)) * time.Millisecond
		if !excuses {
			length += w.term // a shorter one couldn't cost a lease
		}
		time.Sleep(length)
		over()
	}
	w.note("fault over")
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

//go:build chaos

package chaos_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

// gate is a proxy between one client process and one server, with the rules of all faults that are on.
type gate struct {
	*redistest.Proxy
	rng *rand.Rand

	mu         sync.Mutex
	rules      []*redistest.Rule
	subscribed map[int]bool // connections with a subscription
}

func newGate(t *testing.T, s *redistest.Server) *gate {
	t.Helper()
	g := &gate{Proxy: redistest.NewProxy(t, s.Addr())}
	g.SetRule(g.judge)
	return g
}

// reset has the gate forget what earlier runs did.
func (g *gate) reset(t *testing.T, seed uint64) {
	t.Helper()
	g.mu.Lock()
	g.rng, g.rules, g.subscribed = rand.New(rand.NewPCG(seed, 1)), nil, make(map[int]bool)
	g.mu.Unlock()
	g.CutAll()
	g.Release()
	g.Accept(t)
}

// judge asks the rules in turn.
func (g *gate) judge(c redistest.Chunk) redistest.Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.Dir == redistest.Up && bytes.Contains(bytes.ToLower(c.Data[:min(len(c.Data), 64)]), []byte("subscribe")) {
		g.subscribed[c.Conn] = true
	}
	for _, r := range g.rules {
		if v := (*r)(c); v != redistest.Pass {
			return v
		}
	}
	return redistest.Pass
}

// add puts a rule on, until remove is called. The rule may use the gate's random numbers.
func (g *gate) add(rule redistest.Rule) (remove func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &rule
	g.rules = append(g.rules, r)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.rules = slices.DeleteFunc(g.rules, func(o *redistest.Rule) bool { return o == r })
	}
}

// ruled is a fault by which the proxies of some clients, or of all, follow a rule.
func ruled(name string, rule func(g *gate, s step) redistest.Rule, also ...func(t *testing.T, g *gate)) fault {
	return fault{name: name, put: func(t *testing.T, r *run, s step) func(*testing.T) {
		var undo []func()
		for _, g := range r.gatesOf(s.Client) {
			undo = append(undo, g.add(rule(g, s)))
			for _, f := range also {
				f(t, g)
			}
		}
		return func(t *testing.T) {
			for _, f := range undo {
				f()
			}
			for _, g := range r.gatesOf(s.Client) {
				g.Release()
				g.Accept(t)
			}
		}
	}}
}

// silent is ruled, by rules that drop: the connections don't come back to life when it is over.
func silent(name string, rule func(g *gate, s step) redistest.Rule) fault {
	f := ruled(name, rule)
	f.silent = true
	return f
}

// when is a rule: what has to be decided is decided for chunks of one direction.
func when(d redistest.Direction, decide func(redistest.Chunk) redistest.Verdict) redistest.Rule {
	return func(c redistest.Chunk) redistest.Verdict {
		if c.Dir != d {
			return redistest.Pass
		}
		return decide(c)
	}
}

func isScript(c redistest.Chunk) bool {
	return c.Dir == redistest.Up && bytes.Contains(bytes.ToLower(c.Data[:min(len(c.Data), 64)]), []byte("eval"))
}

// some is true in that many of a hundred cases.
func (g *gate) some(percent int) bool { return g.rng.IntN(100) < percent }

// longestDelay is how late a request may come. It may come after the fault.
const longestDelay = 2700 * time.Millisecond

// networkFaults are those of the way between clients and servers.
var networkFaults = []fault{
	ruled("latency", func(_ *gate, s step) redistest.Rule {
		d := time.Duration(5+2*s.Size) * time.Millisecond
		return func(redistest.Chunk) redistest.Verdict { return redistest.Delay(d) }
	}),
	ruled("jitter", func(g *gate, s step) redistest.Rule {
		return func(redistest.Chunk) redistest.Verdict {
			return redistest.Delay(time.Duration(g.rng.IntN(10+4*s.Size)) * time.Millisecond)
		}
	}),
	ruled("bandwidth", func(_ *gate, s step) redistest.Rule {
		perSecond := 1000 + 100*s.Size
		return func(c redistest.Chunk) redistest.Verdict {
			return redistest.Delay(time.Duration(len(c.Data)) * time.Second / time.Duration(perSecond))
		}
	}),
	ruled("resets", func(g *gate, s step) redistest.Rule {
		return func(redistest.Chunk) redistest.Verdict {
			if g.some(1 + s.Size/5) {
				return redistest.Cut
			}
			return redistest.Pass
		}
	}, func(_ *testing.T, g *gate) { g.CutAll() }),
	ruled("refused connections", func(*gate, step) redistest.Rule {
		return func(redistest.Chunk) redistest.Verdict { return redistest.Pass }
	}, func(t *testing.T, g *gate) { g.Refuse(t) }, func(_ *testing.T, g *gate) { g.CutAll() }),
	silent("requests lost", func(*gate, step) redistest.Rule {
		return when(redistest.Up, func(redistest.Chunk) redistest.Verdict { return redistest.Drop })
	}),
	silent("replies lost", func(*gate, step) redistest.Rule {
		return when(redistest.Down, func(redistest.Chunk) redistest.Verdict { return redistest.Drop })
	}),
	ruled("requests held up", func(*gate, step) redistest.Rule {
		return when(redistest.Up, func(redistest.Chunk) redistest.Verdict { return redistest.Hold })
	}),
	ruled("replies held up", func(*gate, step) redistest.Rule {
		return when(redistest.Down, func(redistest.Chunk) redistest.Verdict { return redistest.Hold })
	}),
	silent("some replies dropped", func(g *gate, s step) redistest.Rule {
		asked := make(map[int]bool)
		return func(c redistest.Chunk) redistest.Verdict {
			if c.Dir == redistest.Up {
				asked[c.Conn] = isScript(c) && g.some(5+s.Size/2)
				return redistest.Pass
			}
			if asked[c.Conn] {
				delete(asked, c.Conn)
				return redistest.Drop
			}
			return redistest.Pass
		}
	}),
	// They run when nobody waits for the answer any more.
	ruled("requests far too late", func(g *gate, s step) redistest.Rule {
		return func(c redistest.Chunk) redistest.Verdict {
			if isScript(c) && g.some(5+s.Size/3) {
				return redistest.Delay(longestDelay - time.Duration(g.rng.IntN(2500))*time.Millisecond)
			}
			return redistest.Pass
		}
	}),
	silent("silent subscriptions", func(g *gate, _ step) redistest.Rule {
		return func(c redistest.Chunk) redistest.Verdict {
			if g.subscribed[c.Conn] {
				return redistest.Drop
			}
			return redistest.Pass
		}
	}),
}

//go:build chaos

package chaos_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// schedule is everything that a seed decides about a run.
type schedule struct {
	Seed    uint64
	Shape   string
	Family  string // of locks
	Lease   time.Duration
	Timeout time.Duration // ReadTimeout of the clients
	Clients int
	Workers int // of each
	Targets []target
	Steps   []step
	Forces  bool `json:",omitempty"` // ForceUnlock is called now and then
	Stale   bool `json:",omitempty"` // one name is held for several leases, and the clients tell where their commands go
	Agent   bool `json:",omitempty"` // an agent renews for all clients

	// Nests says that locks are also taken while another is held: "ordered", which can't deadlock, or "unordered", which does. "": they aren't.
	Nests string `json:",omitempty"`
}

// step is one fault of a schedule.
type step struct {
	Fault  string
	At     time.Duration // after all clients are warm
	For    time.Duration
	Client int           // whose network, or process; everybody: all of them; or theAgent
	Target int           // whose server
	Size   int           // 0 to 99: how bad
	Clock  time.Duration `json:",omitempty"`
}

const (
	clients   = 3 // processes, at most
	everybody = -1
)

func (s step) String() string {
	text := fmt.Sprintf("%s at %v for %v, client %d, name %d, size %d", s.Fault, s.At, s.For, s.Client, s.Target, s.Size)
	text = strings.Replace(text, fmt.Sprintf("client %d", theAgent), "the agent", 1)
	return strings.Replace(text, "client -1", "all clients", 1)
}

func (s schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s on %s, lease %v, timeout %v, %d clients of %d workers", s.Seed, s.Family, s.Shape, s.Lease, s.Timeout, s.Clients, s.Workers)
	if s.Agent {
		b.WriteString(", with an agent")
	}
	if s.Nests != "" {
		fmt.Fprintf(&b, ", nested %s", s.Nests)
	}
	for _, st := range s.Steps {
		fmt.Fprintf(&b, "; %v", st)
	}
	return b.String()
}

// wish bounds what a schedule is made up of, for a closer look. "" bounds nothing.
type wish struct{ shape, family, fault string }

// agent reports whether the runs need an agent.
func (w wish) agent() bool {
	f, _ := faultNamed(w.fault)
	return f.agent
}

// newSchedule makes up the run of a seed.
func newSchedule(seed uint64, w wish) schedule {
	rng := rand.New(rand.NewPCG(seed, 0xC4A05))
	pick := func(of ...int) time.Duration { return time.Duration(of[rng.IntN(len(of))]) * time.Millisecond }
	s := schedule{
		Seed: seed, Shape: shapeOf(seed, w), Lease: pick(1000, 1500, 2000), Timeout: pick(300, 600, 1000),
		Clients: clients, Workers: 3 + rng.IntN(2),
	}
	var able []family
	for _, f := range families {
		if f.on(s.Shape) && (w.family == "" || f.name == w.family) && (!f.numbers || !w.agent()) {
			able = append(able, f)
		}
	}
	if len(able) == 0 {
		able = []family{{name: "mutex"}}
	}
	f := able[rng.IntN(len(able))]
	s.Family, s.Targets = f.name, f.targets(rng)
	free := time.Duration(0) // until when no fault that wants to be alone is on
	for range 1 + rng.IntN(5)/3 {
		st := newStep(rng, &s, f, w.fault)
		if f, _ := faultNamed(st.Fault); f.alone {
			st.At = max(st.At, free)
			free = st.At + st.For + 50*time.Millisecond
		}
		s.Steps = append(s.Steps, st)
	}
	s.Forces = rng.IntN(2) == 0
	for _, st := range s.Steps {
		if f, _ := faultNamed(st.Fault); f.stale {
			s.stale(rng, st)
			return s
		}
	}
	s.addAgent(f, w)
	if f.nests {
		s.Nests = nests[rand.New(rand.NewPCG(seed, 0xDEAD)).IntN(len(nests))] // of its own, so that a seed's faults stay what they were
	}
	return s
}

// nests are what Nests may be.
var nests = []string{"", history.NestOrdered, history.NestUnordered}

// staleLeases are what those of schedule.stale are drawn from: long ones seldom, as such a run takes three of them.
var staleLeases = []int{2, 2, 2, 3, 3, 3, 5, 5, 5, 9, 9, 9, 9, 15, 30}

// stale is for a primary that was replaced and goes on: as long as it takes until the new one has given the lock to somebody else.
// The fault has the run to itself, and nobody takes a lock away.
func (s *schedule) stale(rng *rand.Rand, st step) {
	s.Stale, s.Forces, s.Lease = true, false, time.Duration(staleLeases[rng.IntN(len(staleLeases))])*time.Second
	for i, t := range s.Targets {
		if t.Long {
			st.Target = i
		}
	}
	st.For = s.Lease + time.Second + st.For
	s.Steps = []step{st}
}

// shapeOf is the shape of a seed: in turn, and now and then the one that is for a Quorum alone.
func shapeOf(seed uint64, w wish) string {
	f, bound := familyNamed(w.family)
	fault, faulty := faultNamed(w.fault)
	var able []string
	for _, s := range shapes {
		if (w.shape == "" || s == w.shape) && (!bound || f.on(s)) && (!faulty || fault.on(s)) && (s != quorum || w.shape == s || bound) {
			able = append(able, s)
		}
	}
	if len(able) == 0 || w == (wish{}) && seed%11 == 10 {
		return quorum
	}
	return able[seed%uint64(len(able))]
}

func newStep(rng *rand.Rand, s *schedule, of family, only string) step {
	var able []fault
	for _, f := range faults {
		if f.on(s.Shape) && !f.agent && (only == "" || f.name == only) {
			able = append(able, f)
		}
	}
	if len(able) == 0 {
		able = []fault{calm}
	}
	for range 100 {
		f := able[rng.IntN(len(able))]
		st := step{
			Fault: f.name, At: time.Duration(rng.IntN(400)) * time.Millisecond, For: time.Duration(200+rng.IntN(2300)) * time.Millisecond,
			Client: rng.IntN(s.Clients+1) - 1, Target: rng.IntN(len(s.Targets)), Size: rng.IntN(100),
		}
		if f.atOnce {
			st.For = 0
		}
		if of.survives(s.Shape, st) {
			return st
		}
	}
	return step{Fault: calm.name}
}

// readSchedule reads what a violated run left.
func readSchedule(text []byte) (schedule, error) {
	var s schedule
	err := json.Unmarshal(text, &s)
	return s, err
}

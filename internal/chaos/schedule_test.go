//go:build chaos

package chaos_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// schedule is everything that a seed decides about a run.
type schedule struct {
	Seed    uint64
	Shape   string
	Lease   time.Duration
	Timeout time.Duration // ReadTimeout of the clients
	Clients int
	Workers int // of each
	Targets []target
	Steps   []step
}

// step is one fault of a schedule.
type step struct {
	Fault  string
	At     time.Duration // after all clients are warm
	For    time.Duration
	Client int           // whose network, or process; everybody: all of them
	Target int           // whose server
	Size   int           // 0 to 99: how bad
	Clock  time.Duration `json:",omitempty"`
}

const everybody = -1

func (s step) String() string {
	text := fmt.Sprintf("%s at %v for %v, client %d, name %d, size %d", s.Fault, s.At, s.For, s.Client, s.Target, s.Size)
	return strings.Replace(text, "client -1", "all clients", 1)
}

func (s schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, lease %v, timeout %v, %d clients of %d workers", s.Seed, s.Shape, s.Lease, s.Timeout, s.Clients, s.Workers)
	for _, st := range s.Steps {
		fmt.Fprintf(&b, "; %v", st)
	}
	return b.String()
}

// newSchedule makes up the run of a seed. only bounds the faults to one, for a closer look; "" doesn't.
func newSchedule(seed uint64, only string) schedule {
	rng := rand.New(rand.NewPCG(seed, 0xC4A05))
	pick := func(of ...int) time.Duration { return time.Duration(of[rng.IntN(len(of))]) * time.Millisecond }
	s := schedule{
		Seed: seed, Shape: shapes[seed%uint64(len(shapes))], Lease: pick(1000, 1500, 2000), Timeout: pick(300, 600, 1000),
		Clients: 3, Workers: 3 + rng.IntN(2),
	}
	for i, f := range families() { // one hot name of each, and one that is held for long
		s.Targets = append(s.Targets,
			target{Name: fmt.Sprintf("%s:%d", f, 2*i), Family: f},
			target{Name: fmt.Sprintf("%s:%d", f, 2*i+1), Family: f, Long: true})
	}
	free := time.Duration(0) // until when no fault that wants to be alone is on
	for range 1 + rng.IntN(5)/3 {
		st := newStep(rng, &s, only)
		if f, _ := faultNamed(st.Fault); f.alone {
			st.At = max(st.At, free)
			free = st.At + st.For + 50*time.Millisecond
		}
		s.Steps = append(s.Steps, st)
	}
	return s
}

func newStep(rng *rand.Rand, s *schedule, only string) step {
	var able []fault
	for _, f := range faults {
		if f.on(s.Shape) && (only == "" || f.name == only) {
			able = append(able, f)
		}
	}
	if len(able) == 0 {
		able = []fault{calm}
	}
	f := able[rng.IntN(len(able))]
	st := step{
		Fault: f.name, At: time.Duration(rng.IntN(400)) * time.Millisecond, For: time.Duration(200+rng.IntN(2300)) * time.Millisecond,
		Client: rng.IntN(s.Clients+1) - 1, Target: rng.IntN(len(s.Targets)), Size: rng.IntN(100),
	}
	if f.atOnce {
		st.For = 0
	}
	return st
}

// readSchedule reads what a violated run left.
func readSchedule(text []byte) (schedule, error) {
	var s schedule
	err := json.Unmarshal(text, &s)
	return s, err
}

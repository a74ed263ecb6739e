package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

var (
	runs = flag.Int("sim.runs", 2, "how many runs")
	seed = flag.Uint64("sim.seed", 0, "the first run's seed; 0: by the time")
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestSimulation makes -sim.runs runs, from -sim.seed on. A run that is violated prints its seed and all that happened.
func TestSimulation(t *testing.T) {
	t.Parallel()
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano()) % 1_000_000 * 1000
	}
	if *runs >= 100 { // of which a third have an agent
		t.Cleanup(func() {
			if n := renewedByAgents.Load(); n < int64(*runs) {
				t.Errorf("agents made %d renewals in %d runs", n, *runs)
			}
		})
	}
	for s := range uint64(*runs) {
		t.Run(fmt.Sprint("seed ", first+s), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(first+s, 0))
				w := newWorld(t, rng)
				w.run(rng)
				if w.violated {
					t.Error(w.events.String())
				}
			})
		})
	}
}

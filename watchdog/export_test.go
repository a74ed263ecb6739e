package watchdog

import "time"

// What the tests of package watchdog_test see beside the API.

const MaxInFlight = maxInFlight

var (
	ErrPanicked = errPanicked
	ErrNoReason = errNoReason
)

// SetClock has the engine read another clock. It is called before the first lease.
func (e *Engine) SetClock(clock func() time.Time) { e.clock = clock }

// Tick is how often the scheduler looks at least.
const Tick = tick

// Stats is a look at the engine.
type Stats struct {
	Leases  int // watched, with and without renewal
	Cohorts int // each renewed by one call per interval
	Ticking bool
	TickAge time.Duration
	Waking  bool  // the scheduler will look again by itself
	Passed  int64 // when it last did

	Groups, Nodes, Agenda, Spare int
}

func (e *Engine) Stats() Stats {
	age, ticking := e.TickAge()
	e.mu.Lock()
	defer e.mu.Unlock()
	cohorts := 0
	for _, g := range e.groups {
		cohorts += g.cohorts
	}
	return Stats{
		Leases: e.leases, Cohorts: cohorts, Ticking: ticking, TickAge: age, Waking: e.wakeAt != never, Passed: e.lastPass,
		Groups: len(e.groups), Nodes: len(e.nodes), Agenda: e.agenda.Len(), Spare: len(e.spare),
	}
}

func (o Outcome) String() string {
	return [...]string{"failed", "renewed", "missing", "taken", "moved"}[o]
}

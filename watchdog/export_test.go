package watchdog

import "time"

// What the tests of package watchdog_test see beside the API.

const MaxInFlight = maxInFlight

var (
	ErrPanicked = errPanicked
	ErrResults  = errResults
	ErrNoReason = errNoReason
	ErrNowhere  = errNowhere
)

func (b *Batch) Timeout() time.Duration { return b.timeout }

// Stats is a look at the engine.
type Stats struct {
	Leases  int // watched, with and without renewal
	Cohorts int // each renewed by one call per interval
	Ticking bool
	TickAge time.Duration
}

func (e *Engine) Stats() Stats {
	age, ticking := e.TickAge()
	e.mu.Lock()
	defer e.mu.Unlock()
	return Stats{Leases: e.leases, Cohorts: e.cohorts, Ticking: ticking, TickAge: age}
}

func (o Outcome) String() string {
	return [...]string{"failed", "renewed", "missing", "taken", "moved"}[o]
}

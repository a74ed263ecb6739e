package deadlock

import "time"

// budget bounds the commands for long waits: budgetStart for each when it becomes long, and budgetRate a second for each from
// then on. The refresh of the waits and an urgent search can't be put off, so they may overdraw it: a refresh comes once a
// second, and an urgent search once in urgentPause.
type budget struct {
	tokens float64
	at     time.Time // when it was refilled
}

const (
	budgetStart = 20.0 // commands for a wait that becomes long: two searches of a cycle of a few clients, and all else until then
	budgetRate  = 2.0  // commands a second for each long wait
	urgentPause = time.Second
)

// refill adds what the time since the last refill allows for so many waits, which were long all that time. Debt is paid also
// while nothing waits.
func (b *budget) refill(now time.Time, waits int) {
	debt := max(b.tokens, -float64(maxSearch(waits))) // at most one search is paid for: what was urgent beyond that isn't
	b.tokens = min(debt+budgetRate*float64(max(waits, 1))*now.Sub(b.at).Seconds(), budgetStart*float64(waits))
	b.at = now
}

// wait returns how long it takes until there is something left for so many waits.
func (b *budget) wait(waits int) time.Duration {
	return time.Duration(max(1-b.tokens, 0) / (budgetRate * float64(max(waits, 1))) * float64(time.Second))
}

// maxSearch is how many commands one search for so many waits sends, at most.
func maxSearch(waits int) int { return 64 + 4*waits }

// due returns when to search for a wait: at its time, or later if the budget is spent.
func (f *Finder) due(s *searchState, now time.Time) time.Time {
	if f.budget.tokens > 0 {
		return s.next
	}
	affordable := now.Add(f.budget.wait(len(f.long)))
	if soon := f.searched.Add(urgentPause); s.urgent() && soon.Before(affordable) {
		affordable = soon
	}
	return later(s.next, affordable)
}

package deadlock

import (
	"time"

	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// budget limits the commands for long waits: each wait allows budgetStart commands when it becomes long, and budgetRate
// a second from then on. A search waits for a token, but an urgent search waits only until urgentPause after the last
// search. A search may spend more tokens than there are, and writing the waits doesn't wait for tokens. So tokens may
// become negative.
type budget struct {
	tokens float64   // commands
	at     time.Time // of the last refill
}

const (
	budgetStart = 20.0 // enough for two searches of a cycle of a few clients, and for all commands before them
	budgetRate  = 2.0
	urgentPause = time.Second
)

// refill adds budgetRate tokens a second for each of the waits, which were long since the last refill. The budget is
// limited to budgetStart for each wait. Without waits it grows as with one, and is limited to 0.
func (b *budget) refill(now time.Time, waits int) {
	debt := max(b.tokens, -float64(maxSearch(waits))) // the debt of more than one search is dropped
	b.tokens = min(debt+budgetRate*float64(max(waits, 1))*now.Sub(b.at).Seconds(), budgetStart*float64(waits))
	b.at = now
}

// wait returns the time until there is a token again, with that many waits.
func (b *budget) wait(waits int) time.Duration {
	return time.Duration(max(1-b.tokens, 0) / (budgetRate * float64(max(waits, 1))) * float64(time.Second))
}

// maxSearch returns the largest number of commands by which one search for that many waits may read the graph.
func maxSearch(waits int) int { return 64 + 4*waits }

// due returns when to search for a wait: at s.next, or later if there are no tokens.
func (f *Finder) due(s *searchState, now time.Time) time.Time {
	if f.budget.tokens > 0 {
		return s.next
	}
	affordable := now.Add(f.budget.wait(len(f.long)))
	if soon := f.searched.Add(urgentPause); s.urgent() && soon.Before(affordable) {
		affordable = soon
	}
	return waitgraph.Later(s.next, affordable)
}

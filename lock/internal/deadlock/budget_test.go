package deadlock

import (
	"testing"
	"time"
)

// refill adds tokens at a rate per wait, up to what so many waits start with. A debt is paid off at that rate, and
// counts for no more than the largest search.
func TestBudget_Refill(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		left  float64
		waits int
		after time.Duration
		want  float64
	}{
		{left: 5, waits: 1, after: time.Second, want: 7},
		{left: 5, waits: 3, after: time.Second, want: 11},
		{left: 19.5, waits: 1, after: time.Second, want: 20},
		{left: 50, waits: 3, after: time.Minute, want: 60},
		{left: 20, waits: 0, after: time.Second, want: 0},
		{left: -30, waits: 0, after: 10 * time.Second, want: -10}, // also while nothing waits
		{left: -500, waits: 0, after: time.Second, want: -62},     // of 64
		{left: -500, waits: 2, after: time.Second, want: -68},     // of 72
	} {
		began := time.Now()
		b := budget{tokens: tt.left, at: began}
		b.refill(began.Add(tt.after), tt.waits)
		if b.tokens != tt.want || !b.at.Equal(began.Add(tt.after)) {
			t.Errorf("%+v: %v at %v", tt, b.tokens, b.at.Sub(began))
		}
	}
}

// A search is made at its time while there is budget. Else it waits until one command can be paid for, or, if it is urgent, for a
// second after the last search. It is never made before its time.
func TestFinder_Due(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const s = time.Second
	for _, tt := range []struct {
		tokens         float64
		next, searched time.Duration // from now on
		urgent         bool
		want           time.Duration
	}{
		{tokens: 1, next: -s, want: -s},
		{tokens: 1, next: s, want: s},
		{tokens: 0, next: -s, want: s / 4},
		{tokens: -39, next: -s, want: 10 * s},
		{tokens: -39, next: 11 * s, want: 11 * s},
		{tokens: -39, next: -s, searched: -s / 2, urgent: true, want: s / 2},
		{tokens: -39, next: s, searched: -s / 2, urgent: true, want: s},
		{tokens: 0, next: -s, searched: -s / 2, urgent: true, want: s / 4},
	} {
		f := &Finder{
			budget: budget{tokens: tt.tokens}, searched: now.Add(tt.searched), long: map[Waiter]*longWait{nil: {}, someWaiter{}: {}},
		}
		state := &searchState{next: now.Add(tt.next), count: 1, notified: tt.urgent}
		if due := f.due(state, now).Sub(now); due != tt.want {
			t.Errorf("%+v: %v", tt, due)
		}
	}
}

type someWaiter struct{ Waiter }

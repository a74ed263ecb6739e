package waitgraph_test

import (
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// A cycle is confirmed if it is seen again, some time apart, and each wait of another client was refreshed since it had been seen first.
func TestSighting(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_795_000_000, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	cycle := func(refreshed ...time.Time) (c waitgraph.Cycle) {
		for _, r := range refreshed {
			c = append(c, waitgraph.Step{Wait: waitgraph.Wait{Refreshed: r}})
		}
		return c
	}
	own := time.Time{}
	s := waitgraph.Sight(cycle(own, at(-100), at(-700)), at(0))
	if s.Next != at(950) { // once the last refresh is due
		t.Errorf("look again at %v", s.Next)
	}
	if s := waitgraph.Sight(cycle(own, own), at(0)); s.Next != at(0).Add(waitgraph.SightingsApart) || !s.Confirmed(cycle(own, own), s.Next) {
		t.Errorf("of waits of this client alone: look again at %v", s.Next)
	}
	for _, look := range []struct {
		at        int
		refreshed time.Time
		next      int // 0: confirmed
	}{
		{400, at(300), 500},
		{950, at(0), 1200}, // just when it had been seen
		{1200, at(-100), 1700},
		{1700, at(-100), 2700},
		{2700, at(1), 0},
	} {
		if confirmed := s.Confirmed(cycle(own, at(300), look.refreshed), at(look.at)); confirmed != (look.next == 0) || !confirmed && s.Next != at(look.next) {
			t.Errorf("at %d ms: confirmed %v, look again at %v", look.at, confirmed, s.Next)
		}
	}
}

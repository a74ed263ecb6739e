//go:build chaos

package chaos_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// one is the client that a step means where it can't mean all.
func (s step) one() int { return max(s.Client, 0) }

// processFaults are those of the client processes.
var processFaults = []fault{
	{name: "client stopped", put: func(t *testing.T, r *run, s step) func(*testing.T) {
		c := r.clients[s.one()]
		c.signal(t, syscall.SIGSTOP)
		r.note(history.Event{What: history.Signal, Name: c.name(), Why: "stopped"})
		return func(t *testing.T) {
			if c != r.clients[s.one()] { // killed meanwhile
				return
			}
			c.signal(t, syscall.SIGCONT)
			r.note(history.Event{What: history.Signal, Name: c.name(), Why: "continued"})
		}
	}},
	// Loops that never rest, on the one processor that it may use.
	{name: "client starved", put: func(t *testing.T, r *run, s step) func(*testing.T) {
		c := r.clients[s.one()]
		c.say(t, fmt.Sprintf("%s %d", sayStarve, 4+s.Size/3))
		return func(t *testing.T) {
			if c == r.clients[s.one()] {
				c.say(t, sayFeed)
			}
		}
	}},
	{name: "client killed", atOnce: true, kills: true, put: func(t *testing.T, r *run, s step) func(*testing.T) {
		c := r.clients[s.one()]
		if err := c.process.Kill(); err != nil {
			t.Fatal(err)
		}
		r.note(history.Event{What: history.Restart, Proc: c.number})
		r.clients[s.one()] = r.start(t, s.one())
		return nothing
	}},
}

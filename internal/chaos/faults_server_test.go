//go:build chaos

package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

// onVictim is a fault of the primary that a step's name lives on.
func onVictim(name string, loses func(string, step) bool, put func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T)) fault {
	return fault{name: name, loses: loses, put: func(t *testing.T, r *run, s step) func(*testing.T) {
		return put(t, r, s, r.rig.victim(t, r.schedule.Targets[s.Target].Name))
	}}
}

// command is a fault by one command, and its undoing by another, if there is one.
func command(name string, loses func(string, step) bool, on string, off string) fault {
	f := onVictim(name, loses, func(t *testing.T, r *run, _ step, victim *redistest.Server) func(*testing.T) {
		r.do(t, victim, on)
		return func(t *testing.T) {
			if off != "" {
				r.do(t, victim, off)
			}
		}
	})
	f.atOnce = off == ""
	return f
}

// do runs a command as the administrator.
func (r *run) do(t *testing.T, s *redistest.Server, words string) {
	t.Helper()
	var args []any
	for _, w := range strings.Fields(words) {
		args = append(args, w)
	}
	if err := r.rig.admin(s).Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%s on %s: %v", words, s.Addr(), err)
	}
}

// background runs a command that takes as long as the fault lasts. What becomes of it is of no interest.
func (r *run) background(s *redistest.Server, args ...any) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = r.rig.admin(s).Do(ctx, args...).Err()
	}()
	return func() { <-done }
}

// serverFaults are those of one server that goes on to be the primary, or comes back as it.
var serverFaults = []fault{
	onVictim("server stopped", ifReplaced, func(t *testing.T, r *run, _ step, victim *redistest.Server) func(*testing.T) {
		victim.Pause(t)
		return func(t *testing.T) { victim.Resume(t) }
	}),
	command("FLUSHALL", always, "FLUSHALL", ""),
	command("SCRIPT FLUSH", nil, "SCRIPT FLUSH", ""),
	command("CLIENT KILL", nil, "CLIENT KILL TYPE normal", ""),
	command("CLIENT KILL of subscribers", nil, "CLIENT KILL TYPE pubsub", ""),
	onVictim("CLIENT PAUSE", ifReplaced, func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		how := "ALL"
		if s.Size < 50 {
			how = "WRITE"
		}
		r.do(t, victim, fmt.Sprintf("CLIENT PAUSE %d %s", s.For.Milliseconds(), how))
		over := time.Now().Add(s.For)
		return func(*testing.T) { time.Sleep(time.Until(over)) } // CLIENT UNPAUSE would have to wait like all others
	}),
	command("memory full, noeviction", nil, "CONFIG SET maxmemory 1 maxmemory-policy noeviction", "CONFIG SET maxmemory 0"),
	mark(command("memory full, allkeys-lru", always, "CONFIG SET maxmemory 1 maxmemory-policy allkeys-lru", "CONFIG SET maxmemory 0 maxmemory-policy noeviction"), evicts),
	command("ACL revoked", nil, "ACL SETUSER default -@all resetchannels", "ACL SETUSER default +@all &*"),
	onVictim("DEBUG SLEEP", ifReplaced, func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		wait := r.background(victim, "DEBUG", "SLEEP", s.For.Seconds())
		return func(*testing.T) { wait() }
	}),
	onVictim("BUSY script", ifReplaced, func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		wait := r.background(victim, "EVAL", "while true do end", 0)
		return func(t *testing.T) {
			// Too early, it says NOTBUSY.
			for try := 0; r.rig.admin(victim).Do(t.Context(), "SCRIPT", "KILL").Err() != nil && try < 100; try++ {
				time.Sleep(10 * time.Millisecond)
			}
			wait()
		}
	}),
	onVictim("server killed, restarted with its data", func(shape string, _ step) bool { return slices.Contains(failsOver, shape) },
		func(t *testing.T, r *run, _ step, victim *redistest.Server) func(*testing.T) {
			victim.Kill(t)
			return func(t *testing.T) { victim.Restart(t, redistest.KeepData) }
		}),
	onVictim("server killed, restarted without its data", always, func(t *testing.T, r *run, _ step, victim *redistest.Server) func(*testing.T) {
		victim.Kill(t)
		return func(t *testing.T) { victim.Restart(t, redistest.LoseData) }
	}),
}

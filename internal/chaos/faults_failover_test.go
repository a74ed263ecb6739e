//go:build chaos

package chaos_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

// replaced waits until another primary than old serves the step's name.
func (r *run) replaced(t *testing.T, s step, old *redistest.Server) {
	t.Helper()
	if r.rig.sentinel != nil {
		r.rig.sentinel.AwaitFailover(t, old)
		return
	}
	r.rig.cluster.AwaitFailover(t, r.slotOf(s), old)
}

func (r *run) slotOf(s step) int { return r.slots[r.schedule.Targets[s.Target].Name] }

func only(f fault, shapes ...string) fault {
	f.shapes = shapes
	return f
}

// failoverFaults are those in which somebody else becomes the primary, or a replica suffers.
var failoverFaults = []fault{
	only(onVictim("failover, primary killed", always, func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		victim.Kill(t)
		return func(t *testing.T) {
			r.replaced(t, s, victim)
			victim.Restart(t, redistest.KeepData)
		}
	}), failsOver...),
	// What was granted while the replica didn't listen is lost for certain.
	only(onVictim("failover, replica behind", always, func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		replica := r.rig.replicaOf(t, victim)
		replica.Pause(t)
		r.do(t, victim, "CLIENT KILL TYPE replica") // else what was sent would wait for it in its socket
		time.Sleep(time.Duration(50+8*s.Size) * time.Millisecond)
		victim.Kill(t)
		replica.Resume(t)
		return func(t *testing.T) {
			r.replaced(t, s, victim)
			victim.Restart(t, redistest.KeepData)
		}
	}), failsOver...),
	only(disagrees("failover, new primary's clock ahead", always, 1, killPrimary), failsOver...),
	only(disagrees("failover, new primary's clock behind", always, -1, killPrimary), failsOver...),
	only(disagrees("failover, ordered, clock behind", nil, -1, orderFailover), cluster),
	// The old one wakes up believing that it still is the primary.
	only(onVictim("failover, primary stopped", always, func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		since := now()
		victim.Pause(t)
		return func(t *testing.T) {
			defer victim.Resume(t)
			r.replaced(t, s, victim)
			if r.rig.sentinel != nil { // a Cluster's clients are told by the old primary, when it goes on
				r.switched(s, victim, since)
			}
		}
	}), failsOver...),
	only(onVictim("failover, ordered", func(shape string, _ step) bool { return shape != cluster },
		func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
			if r.rig.sentinel != nil {
				r.rig.sentinel.Failover(t)
				return nothing
			}
			return orderFailover(t, r, s, victim)
		}), failsOver...),
	only(onVictim("replica stopped", nil, func(t *testing.T, r *run, _ step, victim *redistest.Server) func(*testing.T) {
		replica := r.rig.replicaOf(t, victim)
		replica.Pause(t)
		return func(t *testing.T) { replica.Resume(t) }
	}), replicated, sentinel, failoverCluster, cluster),
	only(onVictim("slot moved", nil, moveSlot), cluster),
	// Clients that heard of neither look two primaries too far back.
	only(onVictim("slot moved, then failover", nil, func(t *testing.T, r *run, s step, from *redistest.Server) func(*testing.T) {
		finish := moveSlot(t, r, s, from)
		return func(t *testing.T) {
			finish(t)
			orderFailover(t, r, s, r.rig.victim(t, r.schedule.Targets[s.Target].Name))(t)
		}
	}), cluster),
}

// moveSlot moves the slot of the step's name to another primary: half of its keys at once, the others when it heals.
func moveSlot(t *testing.T, r *run, s step, from *redistest.Server) func(*testing.T) {
	c := r.rig.cluster
	slot := r.slotOf(s)
	to := from
	for _, p := range r.rig.primaries(t) {
		if p != from {
			to = p
		}
	}
	m := c.Migrate(t, slot, to)
	if keys, err := r.rig.admin(from).ClusterGetKeysInSlot(t.Context(), slot, 10).Result(); err != nil {
		t.Fatal(err)
	} else if len(keys) > 1 {
		r.moveKeys(t, m, keys[:1])
	}
	return func(t *testing.T) {
		r.moveKeys(t, m, nil)
		m.Finish(t)
	}
}

// moveKeys is Migration.MoveKeys with a word of explanation.
func (r *run) moveKeys(t *testing.T, m *redistest.Migration, keys []string) {
	t.Helper()
	r.say("moving %s", strings.Join(keys, " "))
	m.MoveKeys(t, keys...)
}

// clockFaults step the wall clock of a server. It stays so until the run is over, as to set it right would be another step.
var clockFaults = []fault{
	stepClock("clock stepped forward", func(s step) time.Duration { return time.Duration(100+s.Size*s.Size) * time.Millisecond }),
	stepClock("clock stepped back", func(s step) time.Duration { return -time.Duration(50+10*s.Size) * time.Millisecond }),
}

func stepClock(name string, by func(step) time.Duration) fault {
	return fault{name: name, shapes: []string{single}, clock: true, atOnce: true, put: func(t *testing.T, r *run, s step) func(*testing.T) {
		r.skew += by(s)
		r.rig.clock.set(t, r.rig.servers[0], r.skew)
		return nothing
	}}
}

// disagrees has a replica's clock differ from its primary's when it takes over. The clocks stay so until the run is over.
func disagrees(name string, lost func(string, step) bool, ahead int, failOver func(*testing.T, *run, step, *redistest.Server) (wait func(*testing.T))) fault {
	f := onVictim(name, lost, func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		r.skew += time.Duration(ahead*(20+8*s.Size)) * time.Millisecond
		r.rig.clock.set(t, r.rig.replicaOf(t, victim), r.skew)
		wait := failOver(t, r, s, victim)
		return func(t *testing.T) {
			wait(t)
			if err := r.rig.admin(victim).Ping(t.Context()).Err(); err != nil {
				victim.Restart(t, redistest.KeepData)
			}
		}
	})
	f.clock = true
	return f
}

func killPrimary(t *testing.T, r *run, s step, victim *redistest.Server) (wait func(*testing.T)) {
	victim.Kill(t)
	return func(t *testing.T) { r.replaced(t, s, victim) }
}

// orderFailover is for a Cluster.
func orderFailover(t *testing.T, r *run, s step, victim *redistest.Server) (wait func(*testing.T)) {
	replica := r.rig.replicaOf(t, victim)
	r.do(t, replica, "CLUSTER FAILOVER")
	return func(t *testing.T) { r.rig.cluster.Failover(t, r.slotOf(s), victim, replica) }
}

//go:build chaos

package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/internal/redistest"
)

// staleFaults are those in which a primary that was replaced goes on as one, and nobody tells it for a while. No partition for a
// Cluster: a primary that is cut off from the others refuses everything by itself.
var staleFaults = []fault{
	// All come right after a renewal. While the primary is stopped, the next one breaks its connection, and another leads to the new primary.
	stale("failover, primary stopped after a renewal", func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		since := now()
		victim.Pause(t)
		r.replaced(t, s, victim)
		if r.rig.sentinel != nil {
			r.switched(s, victim, since)
			r.rig.demoteAfter(t, demoteLate+time.Duration(s.Size)*100*time.Millisecond)
			victim.Resume(t)
			return func(t *testing.T) { r.rig.demoteAfter(t, demoteSoon) }
		}
		victim.Resume(t)
		r.demoted(t, victim) // until then it tells nobody where to go
		r.switched(s, victim, since)
		return nothing
	}, failsOver...),
	stale("failover, primary stopped and cut off", func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		since := now()
		join := r.cutOff(t, victim)
		victim.Pause(t)
		r.replaced(t, s, victim)
		r.switched(s, victim, since)
		victim.Resume(t)
		return join
	}, sentinel, failoverCluster),
	stale("failover, primary cut off", func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		since := now()
		join := r.cutOff(t, victim)
		r.replaced(t, s, victim)
		r.switched(s, victim, since)
		return join
	}, sentinel, failoverCluster),
}

// stale is a fault that lasts for as long as the step says from when the old primary goes on.
func stale(name string, put func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T), shapes ...string) fault {
	f := onVictim(name, always, func(t *testing.T, r *run, s step, victim *redistest.Server) func(*testing.T) {
		heal := put(t, r, s, victim)
		over := time.Now().Add(s.For)
		return func(t *testing.T) {
			time.Sleep(time.Until(over))
			heal(t)
		}
	})
	f.stale, f.ready = true, awaitRenewal
	return only(f, shapes...)
}

// cutOff cuts a server off from the Sentinels and from its replica, but from no client.
func (r *run) cutOff(t *testing.T, s *redistest.Server) (join func(*testing.T)) {
	t.Helper()
	r.do(t, s, "ACL SETUSER "+keeper+" -@all")
	r.do(t, s, "CLIENT KILL TYPE replica")
	return func(t *testing.T) { r.do(t, s, "ACL SETUSER "+keeper+" +@all") }
}

// switched notes that all have been told of a new primary.
func (r *run) switched(s step, old *redistest.Server, since history.Time) {
	id := slices.Index(r.schedule.Steps, s)
	r.note(history.Event{What: history.Switch, ID: fmt.Sprint(id), Since: since, Server: strconv.Itoa(old.Port())})
}

// demoted waits until a server knows that it is no primary any more.
func (r *run) demoted(t *testing.T, s *redistest.Server) {
	t.Helper()
	for over := time.Now().Add(healthLimit); time.Now().Before(over); time.Sleep(time.Millisecond) {
		if info, err := r.rig.info(t.Context(), s); err == nil && info["role"] == "slave" {
			return
		}
	}
	t.Fatalf("%s is still a primary", s.Addr())
}

// awaitRenewal waits until the lock of a step has just been renewed, if it is held.
func awaitRenewal(t *testing.T, r *run, s step) {
	t.Helper()
	lease, primary := r.schedule.Lease, r.rig.victim(t, r.schedule.Targets[s.Target].Name)
	before := time.Duration(0)
	for over := time.Now().Add(lease + 2*time.Second); time.Now().Before(over); time.Sleep(2 * time.Millisecond) {
		left, err := r.remaining(primary, r.schedule.Targets[s.Target])
		if err != nil { // it is slow to answer; there will be another renewal
			continue
		}
		if before > 0 && before < lease*3/4 && left > lease*9/10 {
			r.say("%s was renewed", r.schedule.Targets[s.Target].Name)
			time.Sleep(10 * time.Millisecond) // for its answer, and for the replica
			return
		}
		before = left
	}
	r.say("%s wasn't renewed", r.schedule.Targets[s.Target].Name)
}

// remaining is for how long a name is taken yet, by Redis. Nobody's is 0.
func (r *run) remaining(primary *redistest.Server, t target) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookPatience)
	defer cancel()
	if t.Family != "permits" {
		left, err := r.rig.admin(primary).PTTL(ctx, t.Name).Result()
		return max(left, 0), err
	}
	last, err := r.rig.admin(primary).ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: "{" + t.Name + "}:timeout", Start: 0, Stop: 0, Rev: true}).Result()
	if err != nil || len(last) == 0 {
		return 0, err
	}
	return max(time.Until(time.UnixMilli(int64(last[0].Score))), 0), nil
}

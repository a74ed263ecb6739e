package agent

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/agentlink"
	"github.com/lockdog/lockdog/lock/internal/cleanup"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// deathTime is how long after the end of a session its client's process may still be found to have died. A dying
// process closes its files first. If it lives on, its client opens another session, or has none of the locks any more.
const deathTime = time.Second

// freeing is how many locks of a user are freed at a time at each node. The others wait for a round trip.
const freeing = 256

// holds are the locks of one client. They are freed when its process dies.
type holds struct {
	agent *Agent
	*visitor

	mu   sync.Mutex
	held map[string]*agentlink.Hold // by owner
	dead bool                       // the process has died; what it had written before may still come
	over bool                       // see endSession
}

// note notes what the client says of its locks.
func (h *holds) note(req *agentlink.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.held)
	for _, owner := range req.Freed {
		h.remove(owner)
	}
	for _, hold := range req.Held {
		h.remove(hold.Owner)
		if h.user.take(hold.Bytes()) {
			h.held[hold.Owner] = &hold
		} else {
			h.user.full.Do(func() { h.agent.tooMany(h.user) })
		}
	}
	h.agent.held.Add(int64(len(h.held) - before))
	if h.dead {
		h.free()
	}
}

// remove forgets a lock. mu must be held.
func (h *holds) remove(owner string) {
	if hold := h.held[owner]; hold != nil {
		delete(h.held, owner)
		h.user.give(hold.Bytes())
	}
}

// died frees all locks.
func (h *holds) died() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
	h.free()
}

// free schedules the release of all locks, again and again until Redis has answered, or the leases are over. mu must be
// held.
func (h *holds) free() {
	for _, hold := range h.held {
		h.agent.cleaner.Add(&cleanup.Task{
			// A queue frees one lock at a time. Each user has queues of its own, and a process's locks go to many.
			Node: fmt.Sprint(h.agent.backend.Node(hold.Key), " ", h.user.id, " ", h.user.nextQueue.Add(1)%freeing),
			Due:  time.Now(), Timeout: time.Duration(hold.Milliseconds) * time.Millisecond,
			Remove: func(ctx context.Context) error { return h.agent.release(ctx, hold, h.pid) },
			Ended:  func() { h.user.give(hold.Bytes()) },
		})
	}
	if !h.over {
		h.agent.held.Add(-int64(len(h.held)))
	}
	clear(h.held)
}

// endSession counts the locks as no longer held. It returns whether there are any, which may still be freed.
func (h *holds) endSession() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.agent.held.Add(-int64(len(h.held)))
	h.over = true
	return len(h.held) > 0
}

// list returns the locks.
func (h *holds) list() (all []HeldLock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hold := range h.held {
		all = append(all, HeldLock{
			Name: hold.Name, Kind: hold.Kind, Owner: hold.Owner, PID: h.pid, UID: h.uid,
		})
	}
	return all
}

// forget forgets all locks. The process lives on, or they have been freed.
func (h *holds) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for owner := range h.held {
		h.remove(owner)
	}
}

// release releases the lock of a process that has died.
func (a *Agent) release(ctx context.Context, h *agentlink.Hold, pid int) (err error) {
	defer func() {
		if v := recover(); v != nil { // of the program's telemetry
			a.panicked(v, debug.Stack())
		}
	}()
	defer func() {
		if err != nil {
			a.rec.Error(ctx, telemetry.OpRelease, redisfail.Classify(err).Kind)
		}
	}()
	began, traits := time.Now(), a.backend.Traits()
	c := a.calls.NewCall(telemetry.PurposeRelease)
	script.ReleaserNamed(h.Release).Args(&c.Request, script.ReleaseArgs{
		Lock: script.Lock{Key: h.Key, Counter: h.Counter}, Owner: h.Owner,
		Publish: traits.Publish, NumSub: traits.NumSubCommand, PassOn: script.PassOnAnnounced,
	})
	reply, err := a.calls.Do(ctx, c, cleanup.Timeout) // together with others
	if err != nil {
		return err
	}
	r, err := script.ParseRelease(reply.Value)
	if err != nil || r.Outcome.NotOurs() { // not ours: the process had released it
		return err
	}
	a.freed.Add(1)
	l := a.rec.Lock(h.Name, h.Kind, h.Group, telemetry.RenewalSpansAll)
	a.rec.Crashed(&l, h.Owner, h.Traceparent, pid, began)
	if r.Refused != nil {
		a.rec.Error(ctx, telemetry.OpRelease, redisfail.Classify(r.Refused).Kind)
	}
	return nil
}

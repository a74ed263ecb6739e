package lock

import (
	"os"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// Full has tests run in their long forms, too, as `make nightly` does.
var Full = os.Getenv("LOCKDOG_FULL") != ""

// Scripts are all scripts by name, as Redis gets them.
var Scripts = make(map[string]*backend.Script)

func init() {
	add := func(scripts ...*backend.Script) {
		for _, s := range scripts {
			Scripts[s.Name] = s
		}
	}
	for _, s := range []*script.Acquirer{
		script.Acquire, script.FairAcquire, script.WriteAcquire, script.ReadAcquire, script.SemaphoreAcquire, script.UnleasedAcquire, script.LatchWait,
	} {
		add(s.Script)
	}
	for _, s := range []*script.Releaser{
		script.Release, script.HandOver, script.FairRelease, script.WriteRelease, script.ReadRelease, script.SemaphoreRelease, script.Retain, script.FairRetain,
		script.UnleasedUndo, script.SemaphoreAdd, script.SemaphoreSet, script.SemaphoreEnsure, script.LatchSet, script.LatchCountDown,
	} {
		add(s.Script)
	}
	add(script.Force.Script, script.RWForce.Script, script.Inspect.Script, script.RWInspect.Script)
	add(script.Renew, script.Count, script.MultiAcquire, script.MultiRelease, script.Raise, script.Batch)
	add(script.WaitsWrite, script.WaitsEnlist, script.WaitsRead, script.WaitsNotify, script.Holders)
}

// Asleep reports whether n calls wait in the client's queues and are idle: their subscriptions are up, no queue is
// asking Redis, and none has a reason to ask before it is woken.
func Asleep(c *Client, n int) bool {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	have := 0
	for _, q := range c.waits.queues {
		if q.subscription != subUp || q.membership.Channel() != "" && !q.membership.Reachable() || q.state == headAsks || q.due != wakeNone {
			return false
		}
		have += q.count
	}
	return have == n
}

// KeysBeside are all keys that a lock of any kind may have beside its own.
func KeysBeside(c *Client, name string) []string {
	return append(keysBeside(c, name), script.PermitsKey(c.cfg.prefix+name))
}

package lock

import (
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// Scripts are all scripts by name, as Redis gets them.
var Scripts = make(map[string]*backend.Script)

func init() {
	add := func(scripts ...*backend.Script) {
		for _, s := range scripts {
			if s != nil {
				Scripts[s.Name] = s
			}
		}
	}
	for _, k := range []*kind{mutexKind, fairKind, writeKind, readKind, permitKind, semaphoreKind, latchKind} {
		add(k.acquire, k.release, k.handOver, k.force, k.inspect)
	}
	add(script.Renew, script.Count, script.SemaphoreUndo, script.SemaphoreAdd, script.SemaphoreSet, script.LatchSet, script.LatchCountDown)
	add(script.MultiAcquire, script.MultiRelease, script.Raise, script.Batch)
}

// Asleep says whether each of n calls of Lock that wait in the client's lines was told last that the lock is held, hears of releases and so
// asks Redis for nothing more until it is woken.
func Asleep(c *Client, n int) bool {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	have := 0
	for _, q := range c.waits.queues {
		if !q.subscribed || q.own != "" && !q.called || q.attempting || q.due != wakeNone {
			return false
		}
		have += q.count
	}
	return have == n
}

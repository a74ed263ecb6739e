package lock

import "github.com/lockdog/lockdog/lock/internal/backend"

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
		add(k.acquire, k.release, k.force, k.inspect)
	}
	add(renewScript, countScript, semaphoreUndoScript, semaphoreAddScript, semaphoreSetScript, latchSetScript, latchCountDownScript)
	add(multiAcquireScript, multiReleaseScript, raiseScript, batchScript)
}

package lock

import "time"

// track counts a waiter that has no queue here, as it waits for a lock of several clients. seen is who holds the lock.
func (ws *waitQueues) track(w *waiter, seen HeldError) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.tracked[w] = seen
}

// trackClaim counts an acquire as a waiter before Redis has answered it.
func (ws *waitQueues) trackClaim(claim *claim, params acquireParams) *waiter {
	w := &waiter{lock: claim.lock, claim: claim, params: params, since: time.Now(), signal: make(chan struct{}, 1)}
	ws.track(w, HeldError{})
	return w
}

// untrack ends track.
func (ws *waitQueues) untrack(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.tracked, w)
}

// wakeTracked wakes the tracked waiters: the client closes.
func (ws *waitQueues) wakeTracked() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.tracked {
		w.wake()
	}
}

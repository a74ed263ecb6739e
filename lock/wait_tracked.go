package lock

import "time"

// track makes Leases show a waiter that has no queue here: of a Quorum, or of a Lock whose first try has failed.
func (ws *waitQueues) track(w *waiter, seen HeldError) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.tracked[w] = seen
}

// trackClaim tracks a Lock whose first try has failed.
func (ws *waitQueues) trackClaim(claim *claim, params acquireParams) *waiter {
	w := &waiter{lock: claim.lock, claim: claim, params: params, since: time.Now(), signal: make(chan struct{}, 1)}
	ws.track(w, HeldError{})
	return w
}

func (ws *waitQueues) untrack(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.tracked, w)
}

// wakeTracked makes the waiters of a Quorum notice that this client closes. It has no effect on the waiters of
// trackClaim, which don't wait for their signal. Waiters in a queue notice it by themselves.
func (ws *waitQueues) wakeTracked() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.tracked {
		w.wake()
	}
}

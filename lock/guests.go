package lock

import "time"

// track counts somebody who waits for a lock of several clients as a waiter of this one, too, and notes what he saw.
func (ws *waitQueues) track(w *waiter, seen HeldError) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.tracked[w] = seen
}

// trackClaim counts a call as a waiter that has no place in line, as Redis hasn't answered it yet.
func (ws *waitQueues) trackClaim(b *claim, t acquireParams) *waiter {
	w := &waiter{lock: b.lock, claim: b, terms: t, since: time.Now(), signal: make(chan struct{}, 1)}
	ws.track(w, HeldError{})
	return w
}

// untrack ends that.
func (ws *waitQueues) untrack(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.tracked, w)
}

// wakeTracked has guests look up: the client closes.
func (ws *waitQueues) wakeTracked() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.tracked {
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
}

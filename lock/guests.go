package lock

import "time"

// host counts somebody who waits for a lock of several clients as a waiter of this one, too, and notes what he saw.
func (ws *waits) host(w *waiter, seen HeldError) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.guests[w] = seen
}

// hostBid counts a call as a waiter that has no place in line, as Redis hasn't answered it yet.
func (ws *waits) hostBid(b *bid, t terms) *waiter {
	w := &waiter{lock: b.lock, bid: b, terms: t, since: time.Now(), signal: make(chan struct{}, 1)}
	ws.host(w, HeldError{})
	return w
}

// dismiss ends that.
func (ws *waits) dismiss(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.guests, w)
}

// disturb has guests look up: the client closes.
func (ws *waits) disturb() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.guests {
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
}

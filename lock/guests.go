package lock

// host counts somebody who waits for a lock of several clients as a waiter of this one, too, and notes what he saw.
func (ws *waits) host(w *waiter, seen HeldError) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.guests[w] = seen
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

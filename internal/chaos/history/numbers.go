package history

// Conserved checks that at the end there are as many permits of a semaphore as at the beginning: those that are
// left and those that are still held.
func Conserved(h *History) (found []Violation) {
	for _, e := range h.Events {
		if e.What == Left && e.Counts[CountLeft] != float64(e.Room) {
			found = append(found, violation("permits", e.Name, e.At, e.At,
				"%s: %v permits are left, of %d", e.Name, e.Counts[CountLeft], e.Room))
		}
	}
	return found
}

// Latches checks that no wait for a latch succeeded before all of its count-downs had begun.
func Latches(h *History) (found []Violation) {
	counted := make(map[string][]Time)
	for _, e := range h.Events {
		if e.What == Counted {
			counted[e.Name] = append(counted[e.Name], e.At)
		}
	}
	for _, o := range h.Ops {
		if o.Call.Kind != KindLatch || !o.Granted {
			continue
		}
		n := 0
		for _, at := range counted[o.Call.Name] {
			if at <= o.Returned {
				n++
			}
		}
		if n < o.Call.Room {
			found = append(found, violation("latch", o.Call.Name, o.Call.At, o.Returned,
				"%s was open to %s, counted down %d times of %d", o.Call.Name, o.Call.ID, n, o.Call.Room))
		}
	}
	return found
}

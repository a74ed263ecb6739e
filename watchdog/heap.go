package watchdog

// heap is a binary min-heap of items ordered by a time in engine nanoseconds. It tells each item where it stands
// (one-based, zero when absent), so that any item is moved or removed in O(log n). The times stand in the heap's own
// memory: comparing them touches no item.
type heap[T any] struct {
	entries []heapEntry[T]
	pos     func(T) *int32
}

type heapEntry[T any] struct {
	at   int64
	item T
}

func (h *heap[T]) len() int { return len(h.entries) }

// minAt is the earliest time in the heap, or never.
func (h *heap[T]) minAt() int64 {
	if len(h.entries) == 0 {
		return never
	}
	return h.entries[0].at
}

// set adds the item, or moves it when it is there already.
func (h *heap[T]) set(item T, at int64) {
	pos := h.pos(item)
	if *pos == 0 {
		h.entries = append(h.entries, heapEntry[T]{at, item})
		*pos = int32(len(h.entries))
		h.up(len(h.entries) - 1)
		return
	}
	i := int(*pos) - 1
	old := h.entries[i].at
	h.entries[i].at = at
	if at < old {
		h.up(i)
	} else if at > old {
		h.down(i)
	}
}

// remove takes the item out; one that is not there is left alone.
func (h *heap[T]) remove(item T) {
	pos := h.pos(item)
	if *pos == 0 {
		return
	}
	i, last := int(*pos)-1, len(h.entries)-1
	*pos = 0
	moved := h.entries[last]
	h.entries[last] = heapEntry[T]{}
	h.entries = h.entries[:last]
	if i == last {
		return
	}
	h.entries[i] = moved
	*h.pos(moved.item) = int32(i + 1)
	h.up(i)
	h.down(i)
}

func (h *heap[T]) up(i int) {
	e := h.entries[i]
	for i > 0 {
		parent := (i - 1) / 2
		if h.entries[parent].at <= e.at {
			break
		}
		h.put(i, h.entries[parent])
		i = parent
	}
	h.put(i, e)
}

func (h *heap[T]) down(i int) {
	e := h.entries[i]
	for {
		child := 2*i + 1
		if child >= len(h.entries) {
			break
		}
		if right := child + 1; right < len(h.entries) && h.entries[right].at < h.entries[child].at {
			child = right
		}
		if e.at <= h.entries[child].at {
			break
		}
		h.put(i, h.entries[child])
		i = child
	}
	h.put(i, e)
}

func (h *heap[T]) put(i int, e heapEntry[T]) {
	h.entries[i] = e
	*h.pos(e.item) = int32(i + 1)
}

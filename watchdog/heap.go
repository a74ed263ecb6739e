package watchdog

import stdheap "container/heap"

// heap is a min-heap of items by a time of the engine. Each item stores its own position in the heap (one-based; zero:
// absent), so any item is moved or removed in O(log n). Times are kept beside the items, so that comparing reads no
// item.
type heap[T any] struct {
	entries []heapEntry[T]
	pos     func(T) *int32
}

type heapEntry[T any] struct {
	at   int64
	item T
}

// Len, Less, Swap, Push and Pop are for container/heap. Push isn't used: its argument would be allocated.
func (h *heap[T]) Len() int           { return len(h.entries) }
func (h *heap[T]) Less(i, j int) bool { return h.entries[i].at < h.entries[j].at }
func (h *heap[T]) Push(any)           { panic("not used") }

func (h *heap[T]) Swap(i, j int) {
	a, b := &h.entries[i], &h.entries[j]
	*a, *b = *b, *a
	*h.pos(a.item), *h.pos(b.item) = int32(i+1), int32(j+1)
}

func (h *heap[T]) Pop() any {
	last := len(h.entries) - 1
	*h.pos(h.entries[last].item) = 0
	h.entries[last] = heapEntry[T]{}
	h.entries = h.entries[:last]
	return nil
}

// minAt returns the earliest time in the heap; never if it is empty.
func (h *heap[T]) minAt() int64 {
	if len(h.entries) == 0 {
		return never
	}
	return h.entries[0].at
}

// set adds the item, or changes its time if the heap has it.
func (h *heap[T]) set(item T, at int64) {
	pos := h.pos(item)
	if *pos == 0 {
		h.entries = append(h.entries, heapEntry[T]{item: item})
		*pos = int32(len(h.entries))
	}
	h.entries[*pos-1].at = at
	stdheap.Fix(h, int(*pos)-1)
}

// remove removes the item, if the heap has it.
func (h *heap[T]) remove(item T) {
	if pos := *h.pos(item); pos != 0 {
		stdheap.Remove(h, int(pos)-1)
	}
}

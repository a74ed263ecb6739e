package lock

import (
	"container/list"
	"sync/atomic"
)

// fairQueues are the lines of waiters for FairMutexes by their lock's key, in the order in which they came; each line has one waiter. A release or
// a loss in this process finds them here, whatever kind of lock it was. The mu of waits guards all but the number.
type fairQueues struct {
	byKey map[string]*list.List // of *queue
	n     atomic.Int64          // lines: mostly none, and then a release needs no mutex
}

// add puts a line at the end. It leaves out lines of other kinds.
func (f *fairQueues) add(q *waitQueue) {
	lk := q.head.lock
	if !lk.kind.queuePerWaiter {
		return
	}
	lines := f.byKey[lk.key]
	if lines == nil {
		lines = list.New()
		f.byKey[lk.key] = lines
	}
	q.fairKey, q.place = lk.key, lines.PushBack(q)
	f.n.Add(1)
}

// remove takes a line out.
func (f *fairQueues) remove(q *waitQueue) {
	if q.place == nil {
		return
	}
	lines := f.byKey[q.fairKey]
	lines.Remove(q.place)
	if lines.Len() == 0 {
		delete(f.byKey, q.fairKey)
	}
	f.n.Add(-1)
}

// first is the line that has been there longest, nil if there is none.
func (f *fairQueues) first(key string) *waitQueue {
	lines := f.byKey[key]
	if lines == nil {
		return nil
	}
	return lines.Front().Value.(*waitQueue)
}

// wakeUnsubscribedFair has the first waiter for a FairMutex ask for a lock that was released, unless its subscription tells it of that.
func (ws *waitQueues) wakeUnsubscribedFair(key string) {
	if ws.fair.n.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.fair.first(key); q != nil && !q.subscribed {
		q.wakeHead(wakeLocal)
	}
}

package lock

import (
	"container/list"
	"sync/atomic"
)

// fairQueues are the queues of this client's FairMutex waiters, by the lock's key, the oldest first. Each queue has one
// waiter. When this client releases, loses or force-unlocks a lock of any kind, it looks up the first queue of the
// lock's key here, unless the release handed the lock over. waitQueues.mu guards everything except n.
type fairQueues struct {
	byKey map[string]*list.List // of *waitQueue
	n     atomic.Int64          // the number of queues. Mostly it is 0: then wakeUnsubscribedFair doesn't lock mu
}

// add adds a queue at the end. It ignores queues of other kinds.
func (f *fairQueues) add(q *waitQueue) {
	lk := q.head.lock
	if !lk.kind.queuePerWaiter {
		return
	}
	queues := f.byKey[lk.key]
	if queues == nil {
		queues = list.New()
		f.byKey[lk.key] = queues
	}
	q.fairKey, q.fairPlace = lk.key, queues.PushBack(q)
	f.n.Add(1)
}

func (f *fairQueues) remove(q *waitQueue) {
	if q.fairPlace == nil {
		return
	}
	queues := f.byKey[q.fairKey]
	queues.Remove(q.fairPlace)
	if queues.Len() == 0 {
		delete(f.byKey, q.fairKey)
	}
	f.n.Add(-1)
}

// first returns the oldest queue for a key, nil if there is none.
func (f *fairQueues) first(key string) *waitQueue {
	queues := f.byKey[key]
	if queues == nil {
		return nil
	}
	return queues.Front().Value.(*waitQueue)
}

// wakeUnsubscribedFair makes this client's first waiter for a FairMutex ask for a lock that was released, unless the
// waiter's subscription works. If it works, a message wakes the waiter when it is the next in Redis's queue.
func (ws *waitQueues) wakeUnsubscribedFair(key string) {
	if ws.fair.n.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.fair.first(key); q != nil && q.subscription != subUp {
		q.wakeHead(wakeLocal)
	}
}

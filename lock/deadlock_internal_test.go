package lock

import "testing"

// A waiter that is asking Redis is told of deadlocks later. The one for which its wait is to fail isn't replaced by another.
func TestSetDeadlock_KeepsWhatHasTheWaitFail(t *testing.T) {
	t.Parallel()
	ws := &waitQueues{}
	first, broken, later := &foundDeadlock{}, &foundDeadlock{broken: true}, &foundDeadlock{}
	w := &waiter{q: &waitQueue{}, signal: make(chan struct{}, 1)}
	for _, step := range []struct{ set, want *foundDeadlock }{{first, first}, {broken, broken}, {later, broken}} {
		ws.setDeadlock(w, step.set)
		if w.deadlock != step.want {
			t.Errorf("%+v", w.deadlock)
		}
	}
}

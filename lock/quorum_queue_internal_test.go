package lock

import (
	"testing"
	"time"
)

// TestQuorumListener_MessageWhileDown checks that a message from a node that a slot is leaving doesn't stop the polls:
// the next release may be published at another node.
func TestQuorumListener_MessageWhileDown(t *testing.T) {
	queue := &quorumQueue{q: &Quorum{}}
	for range minNodes {
		queue.nodes = append(queue.nodes, &quorumListener{
			queue: queue, nodeState: nodeState{free: time.Now().Add(time.Hour)},
		})
	}
	w := &quorumWaiter{queue: queue}
	w.place = queue.waiters.PushBack(w)
	for _, e := range queue.nodes {
		e.Up()
		e.Down()
		e.Message("")
	}
	queue.asking()
	if at, why, _ := w.next(2); why != wakePoll || at.After(queue.asked.Add(pollEvery)) {
		t.Errorf("the next question comes in %v, as %v", time.Until(at), why)
	}
}

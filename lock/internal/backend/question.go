package backend

import (
	"context"
	"sync/atomic"
	"time"
)

// question is something that a client asks often, and that may take long to answer: go-redis waits for a silent
// Sentinel, and may ignore ctx meanwhile. Only one ask runs at a time.
type question struct {
	ask   func() error
	turn  chan struct{}
	asked time.Time   // when it was last asked; guarded by turn
	vain  atomic.Bool // the last ask failed: there is nobody to ask
}

func newQuestion(ask func() error) *question {
	return &question{ask: ask, turn: make(chan struct{}, 1)}
}

// answered asks, unless another caller asks in the meantime, and reports true once ask has returned: with an answer, or
// with an error, which means that there is nobody to ask. If ctx ends first, answered reports whether the last ask
// failed.
func (q *question) answered(ctx context.Context) bool {
	began := time.Now()
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		return q.vain.Load()
	}
	if q.asked.After(began) { // another caller has asked in the meantime
		<-q.turn
		return true
	}
	q.asked = time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { <-q.turn }()
		q.vain.Store(q.ask() != nil)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return q.vain.Load()
	}
}

package backend

import (
	"context"
	"sync/atomic"
	"time"
)

// question is what a client asks over and over, of somebody who may take long to answer: go-redis asks one Sentinel after the other and doesn't heed
// a ctx meanwhile. It is asked once at a time.
type question struct {
	ask   func() error
	turn  chan struct{}
	asked time.Time   // when it was last asked; guarded by turn
	vain  atomic.Bool // when last answered, the answer was that nobody is there to ask
}

func newQuestion(ask func() error) *question {
	return &question{ask: ask, turn: make(chan struct{}, 1)}
}

// answered asks, and reports whether what was known before can still be relied on, or is up to date now: there was an answer, or nobody
// is there to ask, as far as is known. It is false when the answer is still awaited as ctx ends.
func (q *question) answered(ctx context.Context) bool {
	began := time.Now()
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		return q.vain.Load()
	}
	if q.asked.After(began) { // by another caller, meanwhile
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

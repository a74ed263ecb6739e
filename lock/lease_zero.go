package lock

import (
	"context"
	"fmt"
	"time"
)

// errNoLease is what a Lease says that is nil or zero.
var errNoLease = fmt.Errorf("%w: a nil or zero Lease; use the one that Lock returned", ErrInvalid)

// noContext is the Context of such a Lease.
var noContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errNoLease)
	return ctx
}()

// isZero reports whether no Lock returned the lease.
func (l *Lease) isZero() bool { return l == nil || l.target == nil }

// facts are what a Lease says without taking a lock.
type facts interface {
	lockName() string
	owner() string
	token() int64
	tokens() map[string]int64
	deadline() time.Time
	heartbeat()
}

// of returns whose facts the lease has.
func (l *Lease) of() facts {
	if l.isZero() {
		return noFacts{}
	}
	return l.target
}

// noFacts are those of a Lease that no Lock returned.
type noFacts struct{}

func (noFacts) lockName() string         { return "" }
func (noFacts) owner() string            { return "" }
func (noFacts) token() int64             { return 0 }
func (noFacts) tokens() map[string]int64 { return nil }
func (noFacts) deadline() time.Time      { return time.Time{} }
func (noFacts) heartbeat()               {}

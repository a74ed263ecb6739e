package lock

import (
	"context"
	"fmt"
	"time"
)

// errNoLease is the error of a nil or zero Lease.
var errNoLease = fmt.Errorf("%w: a nil or zero Lease; use the one that Lock returned", ErrInvalid)

// noContext is the Context of a nil or zero Lease.
var noContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errNoLease)
	return ctx
}()

// isZero reports whether the lease is nil or zero: no Lock returned it.
func (l *Lease) isZero() bool { return l == nil || l.target == nil }

// facts are the methods of a leaseTarget that a nil or zero Lease has, too. handleMu must not be held.
type facts interface {
	lockName() string
	owner() string
	token() int64
	tokens() map[string]int64
	deadline() time.Time
	heartbeat()
}

// of returns the facts of the lease, noFacts for a nil or zero Lease.
func (l *Lease) of() facts {
	if l.isZero() {
		return noFacts{}
	}
	return l.target
}

// noFacts are the facts of a nil or zero Lease.
type noFacts struct{}

func (noFacts) lockName() string         { return "" }
func (noFacts) owner() string            { return "" }
func (noFacts) token() int64             { return 0 }
func (noFacts) tokens() map[string]int64 { return nil }
func (noFacts) deadline() time.Time      { return time.Time{} }
func (noFacts) heartbeat()               {}

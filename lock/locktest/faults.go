package locktest

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// ErrReplyLost is for FailAcquires, FailReleases and FailRenewals: the server does what it is asked to, and the client never gets the
// reply. An error that wraps it does the same.
var ErrReplyLost = errors.New("locktest: the reply was lost")

// ReplyError is an error reply of Redis, by which it refuses a call: ReplyError("LOADING Redis is loading the dataset in memory").
type ReplyError string

// Error implements error.
func (e ReplyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (ReplyError) RedisError() {}

// errTimeout is what go-redis returns when the reply hasn't arrived within the ReadTimeout.
var errTimeout error = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}

// FailAcquires makes every acquire of every client fail with err, until it is called with nil. See the package documentation for
// what err may be.
//
// An acquire is each request for a lock: of TryLock, Lock and Do of every kind of lock, for each name of a Multi, of TryAcquire and Acquire of an
// UnleasedSemaphore, and of Latch.Wait. A Quorum has a server for each node, and each fails by itself. Joining a lease that this client
// already has (lock.WithReentrancy) is no request, and works.
func (s *Server) FailAcquires(err error) { s.faults.fail(acquire, err) }

// FailReleases makes every release of every client fail with err, until it is called with nil. The lock stays held, until its lease
// runs out in Redis; with ErrReplyLost it is released. See the package documentation for what err may be.
//
// A release is each request to give something back: of Lease.Release and Do, for each name of a Multi, of Release and AddPermits of a semaphore, and
// of Latch.CountDown. lockdog sends releases itself, too, where the reply to an acquire was lost.
//
// A failing Lease.Release takes until its ctx ends, or else what is left of the lease. Outside a bubble, limit one of the two.
func (s *Server) FailReleases(err error) { s.faults.fail(release, err) }

// FailRenewals makes every renewal of every client fail with err, until it is called with nil. Acquires and releases
// still work. Leases that are not renewed before their Deadline are lost with lock.CauseUnreachable.
func (s *Server) FailRenewals(err error) { s.faults.fail(renewal, err) }

// DelayAcquires makes every acquire (see FailAcquires) of every client reach the server d later than it is sent, until it is called with 0. A
// caller need not wait for that: it can leave when its ctx ends. What the server grants then is given back.
//
// d is fake time in a bubble. With FailAcquires, the error takes as long. A client waits five seconds for a reply, the default ReadTimeout
// of go-redis: with a d as long as that it gets none, and the server nothing. TryLock waits no longer than that itself.
func (s *Server) DelayAcquires(d time.Duration) { s.faults.delay(acquire, d) }

// DelayReleases is the same for every release (see FailReleases).
func (s *Server) DelayReleases(d time.Duration) { s.faults.delay(release, d) }

// operation is what a call is for.
type operation int

const (
	other operation = iota
	acquire
	release
	renewal
	operations
)

func operationOf(call backend.Call) operation {
	switch call.Script {
	case script.Acquire.Script, script.FairAcquire.Script, script.WriteAcquire.Script, script.ReadAcquire.Script, script.SemaphoreAcquire.Script,
		script.UnleasedAcquire.Script, script.LatchWait.Script, script.MultiAcquire:
		return acquire
	case script.Release.Script, script.Retain.Script, script.HandOver.Script, script.FairRelease.Script, script.WriteRelease.Script, script.ReadRelease.Script,
		script.SemaphoreRelease.Script, script.UnleasedUndo.Script, script.SemaphoreAdd.Script, script.LatchCountDown.Script, script.MultiRelease:
		return release
	case script.Renew:
		return renewal
	}
	return other
}

// fault is what happens to a call on its way.
type fault struct {
	err   error
	delay time.Duration
}

// overNetwork is an error as go-redis returns it: what isn't a reply, nor go-redis's own, came of a connection that broke.
func overNetwork(err error) error {
	if err == nil || !redisfail.Classify(err).Unclear || redisfail.IsUnavailable(err) {
		return err
	}
	return &net.OpError{Op: "read", Net: "tcp", Err: err}
}

// faults are the faults of all calls.
type faults struct {
	mu sync.Mutex
	of [operations]fault
}

func (f *faults) fail(op operation, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[op].err = overNetwork(err)
}

func (f *faults) delay(op operation, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[op].delay = d
}

// at returns the fault of a call that is sent now.
func (f *faults) at(call backend.Call, timeout time.Duration) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if call.Script == script.HandOver.Script && f.of[acquire] != (fault{}) {
		// It would acquire, too, for the next waiter. As one that came too late it is followed by a plain release, and the waiter asks itself.
		return fault{err: redisfail.ErrLate}
	}
	at := f.of[operationOf(call)]
	if at.delay >= timeout {
		at = fault{cmp.Or(at.err, errTimeout), timeout}
	}
	return at
}

// apply runs a call, or fails in its place.
func (f fault) apply(run func() (any, error)) (any, error) {
	if f.err != nil && !errors.Is(f.err, ErrReplyLost) {
		return nil, f.err
	}
	reply, err := run()
	if f.err != nil {
		return nil, f.err
	}
	return reply, err
}

// connection is a client's way to the server, with faults.
type connection struct {
	backend.Backend
	faults *faults
}

// Eval implements backend.Backend.
func (c connection) Eval(ctx context.Context, call backend.Call) (any, error) {
	f := c.faults.at(call, c.Timeout())
	time.Sleep(f.delay)
	return f.apply(func() (any, error) { return c.Backend.Eval(ctx, call) })
}

// EvalEach implements backend.Backend. The slowest call delays the others: they share a round trip.
func (c connection) EvalEach(ctx context.Context, calls []backend.Call) []backend.Result {
	of, delay := make([]fault, len(calls)), time.Duration(0)
	for i, call := range calls {
		of[i] = c.faults.at(call, c.Timeout())
		delay = max(delay, of[i].delay)
	}
	time.Sleep(delay)
	results := make([]backend.Result, len(calls))
	for i, call := range calls {
		results[i].Reply, results[i].Err = of[i].apply(func() (any, error) { return c.Backend.Eval(ctx, call) })
	}
	return results
}

// EvalWait implements backend.Backend.
func (c connection) EvalWait(ctx context.Context, call backend.Call, replicas int, timeout time.Duration) (reply any, acked int, err error) {
	f := c.faults.at(call, c.Timeout())
	time.Sleep(f.delay)
	reply, err = f.apply(func() (reply any, err error) {
		reply, acked, err = c.Backend.EvalWait(ctx, call, replicas, timeout)
		return reply, err
	})
	return reply, acked, err
}

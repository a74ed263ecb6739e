package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// The errors to check for with errors.Is. For some there is also a type with details, such as *HeldError for ErrHeld.
var (
	// ErrHeld: the lock is held, another waiter is next, no permit is left, or the latch is closed. See HeldError.
	ErrHeld     = errors.New("lockdog: lock is held")
	ErrLost     = redisfail.ErrLost                              // the lock was lost before its release; see LostError
	ErrReleased = errors.New("lockdog: lease has been released") // Release was called before
	ErrClosed   = redisfail.ErrClosed                            // Client.Close was called
	ErrDeadlock = errors.New("lockdog: deadlock")                // ctx carries a lease of this lock; or DeadlockError
	ErrInvalid  = errors.New("lockdog: invalid")                 // bad name, option or use; it says what is allowed

	// ErrUnavailable: Redis doesn't serve now. It is silent, down, loading, busy, full or read-only, has too few
	// replicas, is part of an incomplete cluster, or refuses the client's credentials; or the Redis client had no free
	// connection, or its Limiter denied the call. An HTTP server answers its request with status 503. The error wraps
	// what Redis said or what failed on the way, unless it is a *ReplicasError.
	ErrUnavailable = errors.New("lockdog: Redis is unavailable")
	// ErrUnconfirmed is returned by Do and TryDo: fn succeeded, but Redis didn't confirm the release. Don't repeat the
	// work. The lock is free one lease later at the latest; WithMinHold and WithTakeoverDelay may keep it for longer.
	ErrUnconfirmed = errors.New("lockdog: release not confirmed")
)

// unavailableError is the error of an operation that Redis doesn't serve now.
type unavailableError struct {
	op  string // what failed
	err error
}

// Error implements error.
func (e *unavailableError) Error() string {
	text := e.op + ": Redis is unavailable: " + e.err.Error()
	if hint := redisfail.Hint(e.err); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// Is makes the error match ErrUnavailable.
func (e *unavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns what Redis said, or what failed on the way to Redis.
func (e *unavailableError) Unwrap() error { return e.err }

// unconfirmedError is the error of a Do or TryDo where fn succeeded and Redis didn't confirm the release.
type unconfirmedError struct{ err error }

// Error implements error.
func (e *unconfirmedError) Error() string {
	return e.err.Error() + "; the work is done, and the lock expires by itself"
}

// Is makes the error match ErrUnconfirmed.
func (e *unconfirmedError) Is(target error) bool { return target == ErrUnconfirmed }

// Unwrap returns the error of the release.
func (e *unconfirmedError) Unwrap() error { return e.err }

// othersLoss is the error of a release that failed while its ctx ended because another lease was lost. It matches what
// is in it, but for that loss: this lease wasn't lost.
type othersLoss struct{ error }

// Is makes the error match what is in it, but not ErrLost.
func (e othersLoss) Is(target error) bool { return target != ErrLost && errors.Is(e.error, target) }

// As finds what is in the error, but no *LostError.
func (e othersLoss) As(target any) bool {
	_, loss := target.(**LostError)
	return !loss && errors.As(e.error, target)
}

// errReentry is the error of a call whose ctx carries a lease of the same lock, if the call must not join that lease
// (see mayJoin), or if it can join the lease of a Quorum's lock only at too few nodes.
var errReentry = fmt.Errorf("%w: lock is held by this very ctx; with WithReentrancy it joins the lease", ErrDeadlock)

// errUpgrade is the error of a reader that asks for the write lock. The reader would wait for itself.
var errUpgrade = fmt.Errorf("%w: lock is held by this very ctx, for reading, and no reader can become the writer: "+
	"release the read lease first, or take the write lock before it", ErrDeadlock)

// HeldError says who holds a lock that could not be taken. It matches ErrHeld.
type HeldError struct {
	Name  string // of the lock
	Owner string // the holder's owner, or a waiting writer's; "": unknown, or nobody holds the lock
	// Remaining is the rest of the holder's lease when last seen, takeover delay included; negative: no expiry. For a
	// semaphore it is that of the lease that ends first. If only another waiter is in the way (FairMutex, RWMutex), it
	// is how long that waiter's place is kept. After a release with WithMinHold it is for how long the lock stays
	// taken.
	Remaining time.Duration

	refusal  string // replaces the text about a holder, see kind.refuses
	local    bool   // the holder is the client that asked
	released bool   // the holder has released the lock, which WithMinHold keeps taken
}

// longestOwner is the maximum number of characters of an owner in the text of an error. Every owner of lockdog is
// shorter. What others wrote into Redis may be longer, and is cut.
const longestOwner = maxTextBytes + 64

// Error implements error.
func (e *HeldError) Error() string {
	by := fmt.Sprintf("%.*q", longestOwner, e.Owner)
	if e.local {
		by = "this process, as " + by
	}
	switch {
	case e.refusal != "":
		return fmt.Sprintf("lockdog: %q %s", e.Name, e.refusal)
	case e.Owner == "":
		return fmt.Sprintf("lockdog: lock %q is held", e.Name)
	case e.released && e.Remaining >= 0:
		return fmt.Sprintf("lockdog: lock %q is held for another %v after its release by %s (WithMinHold)",
			e.Name, e.Remaining, by)
	case e.Remaining < 0:
		return fmt.Sprintf("lockdog: lock %q is held by %s, without an expiry", e.Name, by)
	default:
		return fmt.Sprintf("lockdog: lock %q is held by %s, for %v unless renewed", e.Name, by, e.Remaining)
	}
}

// Is makes the error match ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Cause says how a lease was lost.
type Cause = telemetry.LossCause

// The causes of a loss.
const (
	CauseMissing     = telemetry.LossMissing     // the lock is gone from Redis: deleted, evicted, or lost in a failover
	CauseTaken       = telemetry.LossTaken       // the lock has another owner, or its key holds something else
	CauseExpired     = telemetry.LossExpired     // a lease that isn't renewed ran out
	CauseUnreachable = telemetry.LossUnreachable // no renewal succeeded before the deadline
	CauseStalled     = telemetry.LossStalled     // this process was too late to renew: no CPU, or stopped
	CauseForced      = telemetry.LossForced      // ForceUnlock took it away, and its message has arrived
)

// LostError says that a lock was lost before its release, and how. It matches ErrLost.
type LostError struct {
	Name  string // of the lock
	Cause Cause  // how it was lost
	err   error
}

// Error implements error.
func (e *LostError) Error() string {
	if e.err != nil {
		return fmt.Sprintf("lockdog: lease of lock %q lost: %s: %v", e.Name, e.Cause, e.err)
	}
	return fmt.Sprintf("lockdog: lease of lock %q lost: %s", e.Name, e.Cause)
}

// Is makes the error match ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// ForcedBy returns the id of the client that called ForceUnlock, "" if neither e nor a loss in it has CauseForced.
func (e *LostError) ForcedBy() string {
	var forced forcedError
	_ = errors.As(e.err, &forced)
	return string(forced)
}

// forcedError says which client called ForceUnlock.
type forcedError string

func (e forcedError) Error() string { return fmt.Sprintf("ForceUnlock by %q", string(e)) }

// Unwrap returns the reason, nil if there is no more to say than Cause: the last error of a renewal, an error that
// names the client of a ForceUnlock, the *CanceledError of a lease that ran out because canceled leases aren't renewed,
// the last loss of a Multi's member, or all losses of a Quorum's members.
func (e *LostError) Unwrap() error { return e.err }

// Reason says why a lease was canceled: its holder lost the permission to work before it released.
type Reason = telemetry.CancelReason

// The reasons of a cancellation.
const (
	ReasonContext   = telemetry.CancelContext   // the ctx that the lease follows ended, or its Multi or Quorum did
	ReasonMaxHold   = telemetry.CancelMaxHold   // it was held for longer than WithMaxHold allows
	ReasonHeartbeat = telemetry.CancelHeartbeat // Lease.Heartbeat wasn't called for as long as WithHeartbeat allows
	ReasonClosed    = telemetry.CancelClosed    // the client was closed
)

// CanceledError is the cause of a Lease.Context that ended before the lease. The rest of the lease is time to stop and
// release. The lease isn't renewed any more, except for other leases of the same grant (WithReentrancy), and after
// Client.Close (ReasonClosed): then it is renewed until it is released, or Close gives up.
type CanceledError struct {
	Name   string // of the lock
	Reason Reason // why it was canceled
	err    error
}

// Error implements error.
func (e *CanceledError) Error() string {
	return fmt.Sprintf("lockdog: lease of lock %q canceled: %v", e.Name, e.err)
}

// Unwrap returns ErrClosed, or an error that says what canceled the lease. If it was the ctx that the lease follows,
// that error wraps the cause of the ctx.
func (e *CanceledError) Unwrap() error { return e.err }

func canceledByContext(name string, ctx context.Context) *CanceledError {
	return &CanceledError{name, ReasonContext, &contextEnded{context.Cause(ctx)}}
}

// contextEnded says that the ctx of a lease has ended, with advice for a caller who wanted to bound only the wait.
type contextEnded struct{ cause error }

func (e *contextEnded) Error() string {
	return e.cause.Error() +
		": that ended the ctx given to Lock, or to WithLifetime (to bound the wait only, use WithWait)"
}

func (e *contextEnded) Unwrap() error { return e.cause }

// logged returns the error for the log, without the advice: an ordinary shutdown ends the ctx of every lock.
func (e *CanceledError) logged() error {
	if ended := (*contextEnded)(nil); errors.As(e.err, &ended) {
		return ended.cause
	}
	return e
}

func leaseContextEnded(ctx context.Context) error {
	return fmt.Errorf("the ctx given to WithLifetime has ended: %w", context.Cause(ctx))
}

// ReplicasError says that too few replicas confirmed a grant in time (WithReplicas). The grant has been undone or, if
// Redis didn't confirm that within a second and before ctx ended, is undone in the background.
type ReplicasError struct {
	Name   string        // of the lock
	Wanted int           // how many had to confirm it
	Acked  int           // how many confirmed it
	Within time.Duration // how long they had
}

// Error implements error.
func (e *ReplicasError) Error() string {
	return fmt.Sprintf("lockdog: lock %q: %d of %d replicas confirmed the grant within %v; it was undone",
		e.Name, e.Acked, e.Wanted, e.Within)
}

// Is makes the error match ErrUnavailable.
func (e *ReplicasError) Is(target error) bool { return target == ErrUnavailable }

// waitError is the error of a wait that ended with its ctx. held says why the lock couldn't be taken, cause is the
// cause of ctx.
type waitError struct {
	held  *HeldError
	cause error
}

func (e *waitError) Error() string   { return e.held.Error() + ": stopped waiting: " + e.cause.Error() }
func (e *waitError) Unwrap() []error { return []error{e.held, e.cause} }

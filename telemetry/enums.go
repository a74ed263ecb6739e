package telemetry

// Each string type below has the closed list of values of an attribute. names.go says which of them each metric has.

// Outcome is the outcome of an acquire, a renewal, a batch of renewals, a release or a forced unlock.
type Outcome string

// The outcomes of an acquire. Only AcquireError is an error: it is normal that somebody else holds the lock.
const (
	AcquireAcquired  Outcome = "acquired"  // a new grant, permits without a lease, or an open latch
	AcquireReentered Outcome = "reentered" // joined a grant of the caller's own, without a round trip
	AcquireHeld      Outcome = "held"      // not free; only of TryLock and TryAcquire, and of a node of a Quorum
	AcquireTimeout   Outcome = "timeout"   // WithWait, or the deadline of ctx, is over, and Redis had not failed
	AcquireCanceled  Outcome = "canceled"  // ctx canceled while Redis worked, client closed, a Multi lost a lock, ...
	AcquireError     Outcome = "error"     // Redis failed (also if ctx then ended), deadlock, forbidden reentry, ...
)

// The outcomes of one attempt to renew one lease.
const (
	RenewalRenewed Outcome = "renewed"
	RenewalMissing Outcome = "missing" // the lock was gone
	RenewalTaken   Outcome = "taken"   // somebody else held the lock, or its key held something else
	RenewalError   Outcome = "error"   // no answer, or an error; tried again while the lease lasts
)

// The outcomes of a release.
const (
	ReleaseReleased Outcome = "released"
	ReleaseLost     Outcome = "lost"    // the lock was not ours any more
	ReleaseError    Outcome = "error"   // Redis didn't confirm it; the cleanup tries again, or the lease runs out
	ReleaseCrashed  Outcome = "crashed" // the agent released it, because the holder's process had died
)

// operationError is the outcome of any operation that failed.
const operationError = AcquireError

// The outcomes that this package derives itself.
const (
	acquireFailed Outcome = "failed"  // of lockdog.acquire.duration: no grant
	forceForced   Outcome = "forced"  // somebody held the lock
	forceFree     Outcome = "free"    // nobody did
	batchOK       Outcome = "ok"      // no renewal failed, but locks may be missing or taken
	batchPartial  Outcome = "partial" // some renewals failed
	batchError    Outcome = "error"   // all renewals failed, or the call as a whole
)

// WakeupSource is what woke a waiter.
type WakeupSource string

// The sources of a wake-up.
const (
	WakeupMessage WakeupSource = "message" // a message that a client (perhaps this one) freed the lock or granted it
	WakeupLocal   WakeupSource = "local"   // something in this client, such as a release, a hand-over or a loss
	WakeupExpiry  WakeupSource = "expiry"  // the end of the holder's lease
	WakeupPoll    WakeupSource = "poll"    // a timer: a message may be lost, or sent to a waiter that is gone, ...
)

// TakeoverReason is why a waiter got a lock without a message of its release.
type TakeoverReason string

// The reasons of a takeover.
const (
	TakeoverExpired       TakeoverReason = "expired"        // the holder vanished and its lease ran out
	TakeoverMessageMissed TakeoverReason = "message_missed" // it was released, but the message didn't reach this client
)

// HoldEnd is how a grant ended. What comes first counts: a lease that was canceled may then be released or lost.
type HoldEnd string

// The ends of a hold.
const (
	EndReleased HoldEnd = "released" // Release
	EndLost     HoldEnd = "lost"     // the lock was gone, or could no longer be trusted
	EndCanceled HoldEnd = "canceled" // its ctx, WithMaxHold or WithHeartbeat
	EndClosed   HoldEnd = "closed"   // Client.Close
)

// String returns the value of the attribute.
func (e HoldEnd) String() string { return string(e) }

// LossCause is why a lease was lost.
type LossCause string

// The causes of a loss.
const (
	LossMissing     LossCause = "missing"     // gone from Redis: deleted, evicted, flushed, lost in a failover, ...
	LossTaken       LossCause = "taken"       // somebody else holds it, or its key holds something else
	LossExpired     LossCause = "expired"     // a lease that isn't renewed (fixed, or canceled) ran out
	LossUnreachable LossCause = "unreachable" // no renewal succeeded before the deadline
	LossStalled     LossCause = "stalled"     // this process didn't run in time to try a renewal
	LossForced      LossCause = "forced"      // ForceUnlock (known only if its message arrived)
)

// CancelReason is why this client ended a lease before its release.
type CancelReason string

// The reasons of a cancellation.
const (
	CancelContext   CancelReason = "context"   // the ctx that the lease follows ended, or its Multi or Quorum did
	CancelMaxHold   CancelReason = "max_hold"  // WithMaxHold
	CancelHeartbeat CancelReason = "heartbeat" // WithHeartbeat
	CancelClosed    CancelReason = "closed"    // Client.Close
)

// Operation is what the library was doing when an error occurred.
type Operation string

// The operations that can fail.
const (
	OpAcquire     Operation = "acquire"
	OpRenew       Operation = "renew"
	OpRelease     Operation = "release"
	OpSubscribe   Operation = "subscribe"
	OpInspect     Operation = "inspect"
	OpForceUnlock Operation = "force_unlock"
)

// ErrorType is the class of an error, the value of the attribute error.type. For a lost lock that attribute has the
// LossCause instead, and for a renewal that finds the lock missing or taken, the Outcome.
type ErrorType string

// The classes of errors. A held lock is no error, nor is a NOSCRIPT after which the script is sent and runs.
const (
	ErrorTimeout ErrorType = "timeout" // no reply in time, or the call reached Redis too late
	ErrorNetwork ErrorType = "network" // refused, reset, closed, unknown host, untrusted certificate, ...
	ErrorPool    ErrorType = "pool"    // no free connection in the client's pool, or at the server (maxclients)
	// READONLY, REDIRECT: a replica answered; UNBLOCKED: the primary became a replica; NOREPLICAS, MISCONF: a primary
	// accepts no writes.
	ErrorReadonly ErrorType = "readonly"
	// LOADING: the server is reading its data; MASTERDOWN: a replica has lost its primary.
	ErrorLoading     ErrorType = "loading"
	ErrorClusterdown ErrorType = "clusterdown" // CLUSTERDOWN, TRYAGAIN, MOVED, ASK, CROSSSLOT; lock on another server
	ErrorNoscript    ErrorType = "noscript"    // NOSCRIPT even after a resend
	ErrorACL         ErrorType = "acl"         // NOPERM, NOAUTH, WRONGPASS, DENIED
	ErrorOOM         ErrorType = "oom"         // OOM: maxmemory is reached
	ErrorBusy        ErrorType = "busy"        // BUSY: a script runs too long
	ErrorOther       ErrorType = "_OTHER"      // any other; the value is that of the semantic conventions
)

// Purpose is what a command was sent for.
type Purpose string

// The purposes of commands.
const (
	PurposeAcquire   Purpose = "acquire"
	PurposeRenew     Purpose = "renew"
	PurposeRelease   Purpose = "release"
	PurposeSubscribe Purpose = "subscribe"
	PurposeOther     Purpose = "other"
)

// RenewalSpans says which renewals of a sampled lock get a span. It doesn't change counters, histograms and logs, nor
// the spans of losses and cancellations.
type RenewalSpans uint8

// The policies.
const (
	RenewalSpansAll      RenewalSpans = iota // all renewals; the default
	RenewalSpansThinned                      // the first 8, the 16th, the 32nd, ...; and late, slow and failed ones
	RenewalSpansFailures                     // only failed renewals
	RenewalSpansOff                          // none
)

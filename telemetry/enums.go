package telemetry

import "strconv"

// The enumerations below are the closed value lists of attributes. Each list stands once, as the names of
// the constants beside it; the tables in names.go take their values from here.

// text gives the i-th name. A number outside the list is a bug of the caller; it must not cost the program
// more than an odd label, so it is printed and never panics.
func text[E ~uint8](names []string, e E) string {
	if int(e) < len(names) {
		return names[e]
	}
	return "unknown_" + strconv.Itoa(int(e))
}

// AcquireOutcome is how one call to Lock or TryLock ended.
type AcquireOutcome uint8

// The outcomes of an acquire. Only AcquireError is an error: being told that somebody else holds the lock,
// or giving up after a while, is an answer.
const (
	AcquireAcquired  AcquireOutcome = iota // a new grant
	AcquireReentered                       // joined a grant of the caller's own, without a round trip
	AcquireHeld                            // TryLock: somebody else holds it
	AcquireTimeout                         // the wait allowed to Lock is over
	AcquireCanceled                        // the caller's ctx ended
	AcquireError                           // the server could not be asked
)

var acquireOutcomes = []string{"acquired", "reentered", "held", "timeout", "canceled", "error"}

// String is the value as an attribute has it.
func (o AcquireOutcome) String() string { return text(acquireOutcomes, o) }

// acquireDurations are the two values lockdog.acquire.duration tells apart: a reentry takes no round trip
// and is left out.
var acquireDurations = []string{"acquired", "failed"}

// WakeupSource is what made a waiter look again.
type WakeupSource uint8

// The sources of a wake-up.
const (
	WakeupMessage WakeupSource = iota // the release message of another process
	WakeupLocal                       // a release in this process
	WakeupExpiry                      // the lease that was seen ends: has its holder renewed it, or let it run out?
	WakeupPoll                        // the net under lost messages, and under those that call who is gone
)

var wakeupSources = []string{"message", "local", "expiry", "poll"}

// String is the value as an attribute has it.
func (s WakeupSource) String() string { return text(wakeupSources, s) }

// TakeoverReason is why a lock was had without its release having been heard.
type TakeoverReason uint8

// The reasons of a takeover.
const (
	TakeoverExpired       TakeoverReason = iota // the holder vanished and its lease ran out
	TakeoverMessageMissed                       // it was released while our subscription was interrupted
)

var takeoverReasons = []string{"expired", "message_missed"}

// String is the value as an attribute has it.
func (r TakeoverReason) String() string { return text(takeoverReasons, r) }

// HoldEnd is how a grant ended.
type HoldEnd uint8

// The ends of a hold.
const (
	EndReleased HoldEnd = iota // by Release
	EndLost                    // the lock was gone, or could no longer be trusted
	EndCanceled                // its ctx, WithMaxHold or WithHeartbeat ended it, and nobody released it
	EndClosed                  // the client was closed under it
)

var holdEnds = []string{"released", "lost", "canceled", "closed"}

// String is the value as an attribute has it.
func (e HoldEnd) String() string { return text(holdEnds, e) }

// RenewalOutcome is what one attempt to renew one lease came to.
type RenewalOutcome uint8

// The outcomes of a renewal.
const (
	RenewalRenewed RenewalOutcome = iota
	RenewalMissing                // the lock was not there any more
	RenewalTaken                  // somebody else has it
	RenewalError                  // no answer, or an error; tried again while the lease lasts
)

var renewalOutcomes = []string{"renewed", "missing", "taken", "error"}

// String is the value as an attribute has it.
func (o RenewalOutcome) String() string { return text(renewalOutcomes, o) }

// LossCause is why a lease was lost.
type LossCause uint8

// The causes of a loss.
const (
	LossMissing     LossCause = iota // deleted, evicted, flushed, or lost in a failover
	LossTaken                        // somebody else holds it
	LossExpired                      // a fixed lease was overrun
	LossUnreachable                  // no renewal succeeded before the deadline
	LossStalled                      // this process was not scheduled in time to try
	LossForced                       // taken away by ForceUnlock, which said so
)

var lossCauses = []string{"missing", "taken", "expired", "unreachable", "stalled", "forced"}

// String is the value as an attribute has it.
func (c LossCause) String() string { return text(lossCauses, c) }

// CancelReason is why a lease was ended by its own side before its release.
type CancelReason uint8

// The reasons of a cancellation.
const (
	CancelContext   CancelReason = iota // the ctx given to Lock ended
	CancelMaxHold                       // WithMaxHold
	CancelHeartbeat                     // WithHeartbeat
	CancelClosed                        // Client.Close
)

var cancelReasons = []string{"context", "max_hold", "heartbeat", "closed"}

// String is the value as an attribute has it.
func (r CancelReason) String() string { return text(cancelReasons, r) }

// ReleaseOutcome is what a release came to.
type ReleaseOutcome uint8

// The outcomes of a release.
const (
	ReleaseReleased ReleaseOutcome = iota
	ReleaseLost                    // it was not ours any more
	ReleaseError                   // the server could not be asked; the lease runs out by itself
)

var releaseOutcomes = []string{"released", "lost", "error"}

// String is the value as an attribute has it.
func (o ReleaseOutcome) String() string { return text(releaseOutcomes, o) }

// ForceOutcome is what one call to ForceUnlock came to. It is computed by Force.End.
type ForceOutcome uint8

// The outcomes of a forced unlock.
const (
	ForceForced ForceOutcome = iota // somebody held it
	ForceFree                       // nobody did
	ForceError                      // the server could not be asked
)

var forceOutcomes = []string{"forced", "free", "error"}

// String is the value as an attribute has it.
func (o ForceOutcome) String() string { return text(forceOutcomes, o) }

// BatchOutcome is what one renewal call came to. It is computed by RenewBatch.End.
type BatchOutcome uint8

// The outcomes of a batch.
const (
	BatchOK      BatchOutcome = iota // every lease got an answer, also if that was "missing" or "taken"
	BatchPartial                     // some leases got none
	BatchError                       // none did
)

var batchOutcomes = []string{"ok", "partial", "error"}

// String is the value as an attribute has it.
func (o BatchOutcome) String() string { return text(batchOutcomes, o) }

// Operation is what the library was doing when an error came.
type Operation uint8

// The operations that can fail.
const (
	OpAcquire Operation = iota
	OpRenew
	OpRelease
	OpSubscribe
	OpInspect
	OpForceUnlock
)

var operations = []string{"acquire", "renew", "release", "subscribe", "inspect", "force_unlock"}

// String is the value as an attribute has it.
func (o Operation) String() string { return text(operations, o) }

// ErrorType is the class of an error: the closed list behind the attribute error.type.
type ErrorType uint8

// The classes of errors. Being refused a lock and NOSCRIPT are not errors.
const (
	ErrorTimeout     ErrorType = iota // no reply in time
	ErrorNetwork                      // refused, reset, closed, unknown host
	ErrorPool                         // no connection free in the client's pool
	ErrorReadonly                     // READONLY: a replica answered
	ErrorLoading                      // LOADING: the server is reading its data
	ErrorClusterdown                  // CLUSTERDOWN, MASTERDOWN, TRYAGAIN
	ErrorNoscript                     // NOSCRIPT even after a resend
	ErrorACL                          // NOPERM, NOAUTH, WRONGPASS
	ErrorOOM                          // OOM: maxmemory is reached
	ErrorBusy                         // BUSY: a script runs for too long
	ErrorOther                        // anything else; named as the semantic conventions have it
)

var errorTypes = []string{
	"timeout", "network", "pool", "readonly", "loading", "clusterdown", "noscript", "acl", "oom", "busy", "_OTHER",
}

// String is the value as an attribute has it.
func (t ErrorType) String() string { return text(errorTypes, t) }

// Purpose is what a command was sent for.
type Purpose uint8

// The purposes of commands.
const (
	PurposeAcquire Purpose = iota
	PurposeRenew
	PurposeRelease
	PurposeSubscribe
	PurposeOther
)

var purposes = []string{"acquire", "renew", "release", "subscribe", "other"}

// String is the value as an attribute has it.
func (p Purpose) String() string { return text(purposes, p) }

// RenewalSpans says which renewals of a sampled lock get a span. Counters, histograms and logs are the same
// under each; losses and cancellations always have their spans.
type RenewalSpans uint8

// The policies. The zero value leaves the choice to the recorder's Config, whose own default is
// RenewalSpansAll.
const (
	RenewalSpansDefault  RenewalSpans = iota
	RenewalSpansAll                   // each renewal
	RenewalSpansThinned               // the first 8, then the 16th, 32nd, ...; and every slow or failed one
	RenewalSpansFailures              // only those that failed
	RenewalSpansOff                   // none
)

var renewalSpans = []string{"default", "all", "thinned", "failures", "off"}

// String is the value as an attribute has it.
func (p RenewalSpans) String() string { return text(renewalSpans, p) }

package watchdog

import (
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// Batch is one call to the server: the leases of one cohort, all of one node. It is made for the call and never
// used again by the engine, so it may be kept. A lease of it may have been removed since: renew it all the same, its
// result is not looked at. (That is why a renewal must be checked against the owner where it is carried out.)
type Batch struct {
	Node    string    // where the leases live, as given in Spec
	Leases  []*Lease  // a snapshot of the cohort; Lease.Holder leads back to the caller's own
	Results []Result  // to be filled by Config.Renew, one per lease; the zero value is Failed
	Planned time.Time // when the call was due
	Sent    time.Time // when it was handed to Config.Renew; Sent-Planned is the schedule's lag

	// Attachment is for Config.Renew to keep what the callbacks about this batch need. The engine never looks at it.
	Attachment any

	timeout time.Duration // what the call was given
}

// Outcome is what a renewal did for one lease.
type Outcome uint8

// The outcomes of a renewal.
const (
	Failed  Outcome = iota // not known to be renewed; retried until the deadline
	Renewed                // the lease runs its whole TTL again, counted from Batch.Sent
	Missing                // the server no longer has it
	Taken                  // the server has it for somebody else
	Moved                  // it lives on another node now, see Result.Node
)

// Result is the answer for one lease of a batch.
type Result struct {
	Outcome Outcome // what became of the lease
	Err     error   // with Failed: why; with Taken: what the server said, if that was an error
	Node    string  // with Moved: where the lease lives now
}

// Renewal tells a Holder what one attempt did for its lease.
type Renewal struct {
	Batch     *Batch        // the call it was part of
	Result    Result        // what came of it for this lease
	Attempt   int           // attempts for this lease since its last success, this one included
	Lag       time.Duration // how much later than planned the call was made; 0 when it was early
	Remaining time.Duration // lease left when the call was made, measured to the deadline
	Elapsed   time.Duration // from the last confirmed request to this outcome; Elapsed/TTL is the utilization
}

// Loss tells a Holder how its lease ended.
type Loss struct {
	Cause telemetry.LossCause // how it was lost
	Err   error               // the last renewal error since the last success; nil when there was none
	Batch *Batch              // with LossMissing and LossTaken: the call that found out
}

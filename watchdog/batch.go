package watchdog

import (
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// Batch has the leases of one cohort, all of one node, for one call of Config.Renew. It is made for that call and never
// reused by the engine, so it may be kept. If a lease is removed meanwhile, Config.Renew renews it like the others, and
// its result is ignored. (So the server must compare the owner when it renews a lease.)
type Batch struct {
	Node    string    // of the leases, as given in Spec
	Leases  []*Lease  // a snapshot of the cohort; see Lease.Holder
	Results []Result  // to be filled in place by Config.Renew, one per lease; the zero value is Failed
	Planned time.Time // when the call was due
	Sent    time.Time // when Config.Renew was called
	Urgent  bool      // it follows Verify, Moved or a failure, or has less time than usual

	// Attachment is data that Config.Renew keeps for the callbacks of this batch. The engine ignores it.
	Attachment any
}

// Lag returns how much later than planned the call was made; 0 if it was early.
func (b *Batch) Lag() time.Duration { return max(0, b.Sent.Sub(b.Planned)) }

// Outcome is the outcome of a renewal for one lease.
type Outcome uint8

// The outcomes of a renewal.
const (
	Failed  Outcome = iota // not known to be renewed; retried until the deadline
	Renewed                // the lease runs for its whole TTL again, counted from Batch.Sent
	Missing                // the server no longer has the lease
	Taken                  // the lock has another owner, or its key holds something else
	Moved                  // to be renewed by an extra call, at Result.Node: the node that has the lease now
)

// Result is the result of a call for one lease.
type Result struct {
	Outcome Outcome // what became of the lease
	Err     error   // with Failed: why; with Taken: the server's error, if there was one
	Node    string  // with Moved: the node of the extra call, which may be that of this one
}

// Renewal is one attempt to renew a lease, as its Holder gets it.
type Renewal struct {
	Batch     *Batch        // the call
	Result    Result        // of the call, for this lease
	Attempt   int           // failed attempts for this lease since its last success, plus this one
	Remaining time.Duration // from the call to the deadline that the lease had then
	Elapsed   time.Duration // from the last confirmed request to this outcome; Elapsed/TTL is the utilization
}

// Loss is the loss of a lease, as its Holder gets it.
type Loss struct {
	Cause telemetry.LossCause // how it was lost
	Err   error               // with LossTaken: Result.Err; else the last error since the last success; nil: none
	Batch *Batch              // with LossMissing and LossTaken: the call that found out
}

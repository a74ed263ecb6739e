package lock

import "time"

// LeaseState is the state of a lease, or of a call that waits.
type LeaseState string

// The states of a LeaseInfo. The last two are those of a CompositeInfo and its members only.
const (
	StateWaiting   LeaseState = "waiting"   // a call that waits, such as Mutex.Lock or Latch.Wait
	StateHeld      LeaseState = "held"      // held, and renewed unless WithFixedLease was given
	StateCanceled  LeaseState = "canceled"  // its Context has ended; winding down
	StateReleasing LeaseState = "releasing" // Release is under way
	StateLost      LeaseState = "lost"      // it was lost; LastError is the *LostError
	StateAbsent    LeaseState = "absent"    // no lease has this name, or is at this node; LastError says why, if known
)

// LeaseInfo is one lock that a client holds or waits for.
type LeaseInfo struct {
	Name         string         // of the lock; each name of a Multi has its own LeaseInfo
	Kind         string         // as lockdog.kind: "mutex", "fair", ...
	Group        string         // see WithGroup
	State        LeaseState     // held, canceled, releasing or waiting; in a CompositeInfo also lost or absent
	Node         string         // the server where the lock lives, as an address; "" if unknown, and in a CompositeInfo
	Owner        string         // as Lease.Owner; while waiting, the owner under which it asks, "" if there is none
	Token        int64          // 0 while waiting; of a Multi that waits, the largest one so far
	Since        time.Time      // when it was granted, or began to wait
	Lease        time.Duration  // the full length of the lease
	Deadline     time.Time      // until when it is trusted; zero while waiting
	NextRenewal  time.Time      // zero if none is planned
	LastError    error          // of the last renewal or, while waiting, of the last try; nil if it didn't fail
	ErrorAt      time.Time      // when LastError occurred
	FailingSince time.Time      // since when every renewal, or try, has failed; zero if the last one didn't fail
	Reason       Reason         // why it was canceled
	TraceID      string         // of the acquire's trace, "" if not sampled, or while waiting with WithoutHolderLinks
	WaitsFor     string         // while waiting: the owner of the lock when last seen
	Composite    *CompositeInfo // the lock of the Multi or the Quorum that it is a member of; nil for others
}

// EndedLease is a lease that has ended.
type EndedLease struct {
	Name    string    // of the lock
	Kind    string    // as lockdog.kind: "mutex", "fair", ...
	Group   string    // see WithGroup
	Owner   string    // as Lease.Owner
	Token   int64     // as Lease.Token
	Since   time.Time // of the grant
	Ended   time.Time // when it was over
	End     string    // what came first: released, lost, canceled or closed
	Why     string    // the Cause of a loss, the Reason of a cancellation, or ReasonClosed; "" if it was released
	Err     error     // what Lease.Err said
	TraceID string    // of the trace in which it was taken, "" if that isn't sampled

	// Only if End isn't released:
	Node      string          // the server where the lock lived, as an address
	Composite *EndedComposite // the lock of the Multi or the Quorum that it was a member of; nil for others
}

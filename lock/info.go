package lock

import "time"

// LeaseState is where a lease, or the wait for one, stands.
type LeaseState string

// The states of a LeaseInfo. The last two are those of a CompositeInfo and its members only.
const (
	StateWaiting   LeaseState = "waiting"   // a Lock that waits
	StateHeld      LeaseState = "held"      // held, and renewed if it is watched
	StateCanceled  LeaseState = "canceled"  // its Context has ended; winding down
	StateReleasing LeaseState = "releasing" // Release is under way
	StateLost      LeaseState = "lost"      // it was lost; LastError is the *LostError
	StateAbsent    LeaseState = "absent"    // a name, or a node, of which there is no lease; LastError says why, if that is known
)

// LeaseInfo is one lock that a client holds or waits for.
type LeaseInfo struct {
	Name         string         // of the lock; of a Multi each name is a LeaseInfo
	Kind         string         // as lockdog.kind: "mutex", "fair", ...
	Group        string         // see WithGroup
	State        LeaseState     // held, canceled, releasing or waiting
	Node         string         // the server where the lock lives, as an address; "" while that isn't known
	Owner        string         // as Lease.Owner; of the claim while waiting
	Token        int64          // 0 while waiting
	Since        time.Time      // of the grant, or since when it waits
	Lease        time.Duration  // the whole lease
	Deadline     time.Time      // until when it is trusted; zero while waiting
	NextRenewal  time.Time      // zero when none is planned
	LastError    error          // of the last renewal or, while waiting, the last try to take the lock; nil if Redis answered
	ErrorAt      time.Time      // when LastError was; zero without one
	FailingSince time.Time      // since when every renewal, or try, has failed; zero if the last didn't
	Reason       Reason         // why it was canceled
	TraceID      string         // of the trace in which it was taken, "" when that isn't sampled
	WaitsFor     string         // while waiting: the owner of the lock, when last seen
	Composite    *CompositeInfo // the lock of a Multi or a Quorum of which it is a member; nil for others
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
	End     string    // released; else what came first: lost, canceled or closed. A canceled lease stays canceled, however it ended
	Why     string    // the Cause of a loss, the Reason of a cancellation
	Err     error     // what Lease.Err said
	TraceID string    // of the trace in which it was taken, "" when that isn't sampled

	// Only if End isn't released:
	Node      string          // the server where the lock lived, as an address
	Composite *EndedComposite // the lock of a Multi or a Quorum of which it was a member; nil for others
}

package lock

import (
	"runtime"
	"time"

	"github.com/lockdog/lockdog/lock/internal/contention"
)

// DefaultContentionRate is the default of WithContentionProfile.
const DefaultContentionRate = 10

// WithContentionProfile sets the rate of the contention profile, 1,000,000 at most. Each acquire is recorded with
// probability 1/rate; one that is recorded counts rate times. If that would be more than about 1,000 a second in this
// client, fewer are recorded, and each counts for more. 1 records all acquires however many there are, 0 none. The
// default is DefaultContentionRate.
//
// An acquire that is recorded costs 1.5 to 8 µs and, while its lock is held, 450 bytes. One that isn't recorded costs a
// random number, and 0.2 µs if it waits. A client keeps at most 2,000 stacks and 100 names.
//
// By default one wait of 10 is recorded on average, or fewer in a client with more than 10,000 acquires a second. To
// see a rare event, set a smaller rate; with more than 10,000 acquires a second, only 1 helps.
func WithContentionProfile(rate int) Option {
	return clientOption(func(c *clientConfig) { c.profileRate = rate })
}

// Contention says which code waited for locks, and which code held locks while others waited. Counts and summed times
// are estimates for all acquires, made from those that were recorded. Three figures of ContentionName are no such
// estimates: Samples and LongestWait are what was recorded, and Utilization may be cut off. Package lockprofile writes
// a Contention for pprof.
type Contention struct {
	Since, Time time.Time         // from when the client was made until now; Since is zero if Rate is 0
	Rate        int               // of WithContentionProfile: the least that an acquire counts for; 0: none is recorded
	Stacks      []ContentionStack // at most 2,001, in no order
	Names       []ContentionName  // the busiest ones, at most 100; those that caused most waiting first
}

// ContentionStack is what happened to the acquires of one call stack, with one group and one kind of lock, since
// Contention.Since. Acquires that wait or hold now count up to now.
type ContentionStack struct {
	// Frames are the call stack of the acquires, beginning with the function that called Lock, Do or the like. It is
	// empty for all stacks after the first 2,000: they are counted together.
	Frames      []runtime.Frame
	Group, Kind string // of the locks; empty if Frames is

	Waits int64         // for a lock that couldn't be taken at once
	Wait  time.Duration // the sum of these waits, whether they got the lock or gave up

	// Holds counts the holds during which others waited: in this client, or in other clients if the release of a Mutex
	// found them.
	Holds int64
	// Hold is for how long others waited during these holds. For waiters in other clients the whole hold counts,
	// because nobody knows when they began to wait.
	Hold time.Duration

	Waiting, Held int64 // how many wait, or hold, now; Held includes holds for which nobody waits
}

// ContentionName is what happened to the locks with one name in about the last minute.
type ContentionName struct {
	Name        string        // without the key prefix; a hold of a Multi counts for each of its names, a wait for one
	Group, Kind string        // of one of these locks
	Window      time.Duration // the time that the other figures cover
	Samples     int64         // recorded grants and ended waits; if there are few, the other figures are only a guess

	Grants int64 // in the window
	// Utilization is the share of Window in which this client held the lock, 0 to 1. For a semaphore and for readers it
	// is the average number of holders.
	//
	// It is the estimated time held / Window (1 s at least), cut off at 1 except for a semaphore and for readers. So
	// with a Rate above 1 it is too low on average, most of all for a lock with few, long holds. Example: at a Rate of
	// 10, one hold that lasts for the whole Window is recorded in 1 of 10 cases (fewer if there are many acquires), and
	// shown as 1 instead of 10; in the other 9 the lock isn't listed. The more Samples, the smaller the error.
	Utilization float64
	// Waited is the sum of this client's waits for the lock. LongestWait is the longest recorded, even beyond Window.
	Waited, LongestWait time.Duration

	// HeldBy is a stack whose holds made others wait, AwaitedBy a stack that waited. A stack that does so now is chosen
	// first; otherwise it is usually the one with the most time. nil: none is known.
	HeldBy, AwaitedBy []runtime.Frame
}

// Contention returns what was recorded until now: see WithContentionProfile.
func (c *Client) Contention() Contention {
	if !c.initialized() {
		return Contention{Time: time.Now()}
	}
	s := c.profile.Snapshot()
	out := Contention{Since: s.Start, Time: s.Time, Rate: s.Rate}
	for _, st := range s.Stacks {
		out.Stacks = append(out.Stacks, ContentionStack{
			Frames: st.Frames, Group: st.Group, Kind: st.Kind,
			Waits: st.Waits, Wait: st.Wait, Holds: st.Holds, Hold: st.Hold, Waiting: st.Waiting, Held: st.Held,
		})
	}
	for i := range s.Names {
		n := &s.Names[i]
		utilization := n.Held.Seconds() / max(n.Window, time.Second).Seconds()
		if n.Kind != semaphoreKind.name && n.Kind != readKind.name {
			utilization = min(utilization, 1)
		}
		out.Names = append(out.Names, ContentionName{
			Name: n.Name, Group: n.Group, Kind: n.Kind, Window: n.Window, Samples: n.Samples,
			Grants: n.Grants, Utilization: utilization, Waited: n.Waited, LongestWait: n.LongestWait,
			HeldBy: n.HeldBy, AwaitedBy: n.AwaitedBy,
		})
	}
	return out
}

// profile makes s record the hold of the grant. If s is nil, the acquire wasn't sampled.
func (g *grant) profile(s *contention.Sample) {
	if s == nil {
		return
	}
	s.Granted(g.lock.name)
	g.mu.Lock()
	ended := g.state == grantEnded
	if !ended {
		g.ensureExtra().sample = s
	}
	g.mu.Unlock()
	if ended {
		s.End()
	}
}

// profile makes the sample, if there is one, record the hold of all members as one hold.
func (r *record) profile() {
	if r.sample == nil {
		return
	}
	var names []string
	for _, m := range r.comp.all() {
		if !r.comp.isQuorum || len(names) == 0 {
			names = append(names, m.g.lock.name)
		}
	}
	r.sample.Granted(names...)
}

// noteOthersWait notes in the profile that the release of the grant has found waiters that Redis knows of, which are
// nearly always those of other clients.
func (g *grant) noteOthersWait() {
	if g.client().profile == nil {
		return
	}
	g.mu.Lock()
	s, comp := g.extraCopy().sample, g.first.composite
	g.mu.Unlock()
	if comp != nil {
		if r := (grantHandle{&g.first, g}).record(); r != nil {
			s = r.sample
		}
	}
	s.OthersWait()
}

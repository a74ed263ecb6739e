package lock

import (
	"runtime"
	"time"

	"github.com/lockdog/lockdog/lock/internal/contention"
)

// DefaultContentionRate is the rate of WithContentionProfile unless that is given.
const DefaultContentionRate = 10

// WithContentionProfile sets how many acquires there are, on average, to one that the contention profile records: each acquire is recorded with a
// chance of one in rate, whoever makes it, and figures are scaled by rate. 1 records all, 0 none. The default is DefaultContentionRate.
//
// A recorded acquire that doesn't wait costs about 2 µs and, while its lock is held, 450 bytes; the others cost a random number. A client keeps at most 2,000 stacks and
// 100 names. A rare event needs a smaller rate to be seen: with the default, 10 waits are one in the profile on average, and may be none.
func WithContentionProfile(rate int) Option {
	return clientOption(func(c *clientConfig) { c.profileRate = rate })
}

// Contention is what the sampled acquires of a client have waited for, and held while others waited. Counts and summed times are estimates for all
// acquires: what was recorded, times Rate. Three figures of ContentionName aren't such estimates: Samples and LongestWait aren't multiplied, and
// Utilization may be cut. Package lockprofile writes it as pprof reads it.
type Contention struct {
	Since, Time time.Time         // from when the client was made until now
	Rate        int               // of WithContentionProfile; 0: nothing is recorded
	Stacks      []ContentionStack // at most 2,001, in no order
	Names       []ContentionName  // the busiest ones, at most 100; those that caused most waiting first
}

// ContentionStack is what happened to the acquires that one line of code made, with one group and one kind of lock, from Contention.Since on. Of those that wait or
// hold now it has the time until now.
type ContentionStack struct {
	// Frames are the stack of who called Lock, Do or the like, the caller first. It has none for what was counted together, after 2,000 stacks.
	Frames      []runtime.Frame
	Group, Kind string // of the locks

	Waits int64         // for a lock that was held
	Wait  time.Duration // of all of them together, whether they got the lock or gave up

	// Holds are those during which others waited: in this client, or, as far as the release of a Mutex has found them, in others.
	Holds int64
	// Hold is for how long others waited during these holds. Of those in other clients it isn't known since when they waited, and the whole hold counts.
	Hold time.Duration

	Waiting, Held int64 // now; Held whether others wait or not
}

// ContentionName is what happened to the locks with one name in about the last minute.
type ContentionName struct {
	Name        string        // without the key prefix; a Multi counts for each of its names
	Group, Kind string        // of one of them
	Window      time.Duration // what the other figures are of
	Samples     int64         // recorded grants and waits; of a few samples the other figures are no more than a guess

	Grants int64 // in the window
	// Utilization is the share of the time that the lock was held by this client, 0 to 1; of a semaphore and of readers, how many held it on average.
	//
	// It is the time held, as recorded, times Rate, over Window. What exceeds 1 is cut, except of a semaphore and of readers. So with a Rate above 1 it is
	// too low on average, most of all for a lock with few, long holds. Example: at a Rate of 10, one hold that lasts for the whole Window is recorded in 1
	// of 10 cases, and shown as 1 instead of 10; in the other 9 the lock isn't listed. The more Samples, the smaller the error.
	Utilization float64
	// Waited is the time that others of this client waited for it, summed. LongestWait is that of a recorded one.
	Waited, LongestWait time.Duration

	// HeldBy is the stack whose holds made others of this client wait most, AwaitedBy the one that waited most. nil: not recorded.
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
			HeldBy: framesOf(n.HeldBy), AwaitedBy: framesOf(n.AwaitedBy),
		})
	}
	return out
}

func framesOf(s *contention.Stack) []runtime.Frame {
	if s == nil {
		return nil
	}
	return s.Frames
}

// profile has a sampled acquire record the hold that it came to.
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

// profile has a sampled acquire record the hold of all members, as one.
func (r *record) profile() {
	if r.sample == nil {
		return
	}
	var names []string
	for _, m := range r.cl.all() {
		if !r.cl.nodes || len(names) == 0 {
			names = append(names, m.g.lock.name)
		}
	}
	r.sample.Granted(names...)
}

// othersWait is called when the release of the grant has found that other clients wait for the lock.
func (g *grant) othersWait() {
	if g.client().profile == nil {
		return
	}
	g.mu.Lock()
	s, cl := g.extra().sample, g.first.composite
	g.mu.Unlock()
	if cl != nil {
		if r := (grantHandle{&g.first, g}).record(); r != nil {
			s = r.sample
		}
	}
	s.OthersWait()
}

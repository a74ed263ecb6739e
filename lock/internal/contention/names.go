package contention

import (
	"cmp"
	"maps"
	"math"
	"runtime"
	"slices"
	"time"
)

// The window: the six slots of the last minute, and the present one.
const (
	slotTime = 10 * time.Second
	slots    = 7
)

// names are the busiest names, found by a space-saving sketch: once there are maxNames, a new name replaces the name
// with the least weight, and starts with that weight, so that a new busy name isn't replaced at once. A name's weight
// is the time for which its locks were held and waited for. It halves each minute. All other figures count only since
// the name got its place.
type names struct {
	byName map[string]*name
	list   []*name
	epoch  int64 // when the weights were last lowered
}

type name struct {
	name, group, kind string
	weight            float64     // in seconds
	slots             [slots]slot // by epoch modulo slots

	heldBy, awaitedBy majority
}

// slot is what happened in one period of slotTime: estimates for all acquires, except longest and samples.
type slot struct {
	epoch        int64
	grants       int64
	held, waited time.Duration
	longest      time.Duration // the longest wait that ended in it
	samples      int64         // grants, and waits that ended in it
}

// span is a period that has ended.
type span struct {
	from, to time.Duration // since the start of the profile
}

func (p *Profile) span(from, to time.Time) span { return span{from.Sub(p.start), to.Sub(p.start)} }

func (p *Profile) epoch(at time.Time) int64 { return int64(at.Sub(p.start) / slotTime) }

func (s span) length() time.Duration { return s.to - s.from }

// parts calls f for each slot that the span touches, with the time of the span in that slot. If the span is longer than
// the window, parts skips its beginning.
func (s span) parts(f func(epoch int64, d time.Duration)) {
	last := int64(s.to / slotTime)
	for epoch := max(int64(s.from/slotTime), last-slots+1); epoch <= last; epoch++ {
		from := max(s.from, time.Duration(epoch)*slotTime)
		f(epoch, min(s.to, time.Duration(epoch+1)*slotTime)-from)
	}
}

// entry returns the entry of a name. A new one gets the group and kind of the sample.
func (p *Profile) entry(s *Sample, of string, now time.Time) *name {
	ns := &p.names
	if epoch := p.epoch(now); epoch > ns.epoch {
		fall := math.Exp2(-float64(epoch-ns.epoch) * slotTime.Minutes())
		for _, n := range ns.list {
			n.weight *= fall
			n.heldBy.weight *= fall
			n.awaitedBy.weight *= fall
		}
		ns.epoch = epoch
	}
	n := ns.byName[of]
	if n != nil {
		return n
	}
	if len(ns.list) < maxNames {
		n = &name{}
		ns.list = append(ns.list, n)
	} else {
		n = ns.list[0]
		for _, other := range ns.list {
			if other.weight < n.weight {
				n = other
			}
		}
		delete(ns.byName, n.name)
	}
	*n = name{name: of, group: s.site.group, kind: s.site.kind, weight: n.weight}
	ns.byName[of] = n
	return n
}

func (n *name) slot(epoch int64) *slot {
	s := &n.slots[epoch%slots]
	if s.epoch != epoch {
		*s = slot{epoch: epoch}
	}
	return s
}

// held counts a hold that has ended, and its grant.
func (n *name) held(s *Sample, t span) {
	n.group, n.kind = s.site.group, s.site.kind
	n.weight += s.seconds(t.length())
	n.heldBy.vote(s, s.contended)
	granted := int64(t.from / slotTime)
	t.parts(func(epoch int64, d time.Duration) {
		at := n.slot(epoch)
		at.held += s.scaled(d)
		if epoch == granted {
			at.grants += s.standsFor
			at.samples++
		}
	})
}

func (n *name) waited(s *Sample, t span) {
	n.weight += s.seconds(t.length())
	n.awaitedBy.vote(s, t.length())
	t.parts(func(epoch int64, d time.Duration) { n.slot(epoch).waited += s.scaled(d) })
	last := n.slot(int64(t.to / slotTime))
	last.longest = max(last.longest, t.length())
	last.samples++
}

// majority is the site with more than half of all votes if there is one, and otherwise any site. A vote counts as much
// as its duration.
type majority struct {
	site   *site
	weight float64 // in seconds
}

func (m *majority) vote(s *Sample, d time.Duration) {
	switch weight := s.seconds(d); {
	case m.site == s.site:
		m.weight += weight
	case weight > m.weight:
		m.site, m.weight = s.site, weight-m.weight
	default:
		m.weight -= weight
	}
}

// seconds is like scaled, but can't overflow: a lock may be held for years, and the sample may stand for many acquires.
func (s *Sample) seconds(d time.Duration) float64 { return d.Seconds() * float64(s.standsFor) }

// Name is what happened in the window to the locks with one name. Its figures are estimates for all acquires, except
// Samples and LongestWait.
type Name struct {
	Name, Group, Kind string
	Window            time.Duration // the period of the other figures
	Samples           int64         // sampled grants, and sampled waits that have ended
	Grants            int64
	Held              time.Duration // sum over all holders
	Waited            time.Duration // sum over all waiters
	LongestWait       time.Duration // of the sampled waits, including those that go on

	// HeldBy is the stack of the holds that others waited for, AwaitedBy that of the waits: see majority. If there are
	// such holds or waits now, only these count. nil: unknown.
	HeldBy, AwaitedBy []runtime.Frame
}

// busy is an unfinished Name: it has sites instead of frames.
type busy struct {
	Name
	heldBy, awaitedBy majority
}

// busy returns, by name, what happened in the window, including waits and holds that go on. mu must be held; top does
// the rest without mu. No name is added to the sketch here, because another name would lose its place.
func (p *Profile) busy(now time.Time) map[string]*busy {
	first := p.epoch(now) - slots + 1
	window := now.Sub(p.start.Add(time.Duration(max(first, 0)) * slotTime))
	found := make(map[string]*busy, len(p.names.list))
	of := func(name string) *busy {
		b := found[name]
		if b == nil {
			b = &busy{Name: Name{Name: name, Window: window}}
			found[name] = b
		}
		return b
	}
	for s := range p.live {
		if !s.waitingSince.IsZero() {
			b := of(s.awaited)
			b.Group, b.Kind = cmp.Or(b.Group, s.site.group), cmp.Or(b.Kind, s.site.kind)
			took := now.Sub(s.waitingSince)
			b.Waited += s.scaled(min(took, window))
			b.LongestWait = max(b.LongestWait, took)
			b.awaitedBy.vote(s, took)
			continue
		}
		for _, name := range s.names {
			b := of(name)
			b.Group, b.Kind = s.site.group, s.site.kind
			b.Held += s.scaled(min(now.Sub(s.heldSince), window))
			if p.epoch(s.heldSince) >= first {
				b.Grants += s.standsFor
				b.Samples++
			}
			b.heldBy.vote(s, s.contendedFor(now))
		}
	}
	for _, n := range p.names.list {
		b := of(n.name)
		if b.Held == 0 { // otherwise they are those of the present holder
			b.Group, b.Kind = n.group, n.kind
		}
		for i := range n.slots {
			if s := &n.slots[i]; s.epoch >= first {
				b.Samples += s.samples
				b.Grants += s.grants
				b.Held += s.held
				b.Waited += s.waited
				b.LongestWait = max(b.LongestWait, s.longest)
			}
		}
		b.heldBy, b.awaitedBy = cmp.Or(b.heldBy, n.heldBy), cmp.Or(b.awaitedBy, n.awaitedBy)
	}
	return found
}

// top returns the names with the most waiting first.
func top(found map[string]*busy, frames func(*site) []runtime.Frame) []Name {
	maps.DeleteFunc(found, func(_ string, b *busy) bool { return b.Samples == 0 && b.Held == 0 && b.Waited == 0 })
	most := slices.SortedFunc(maps.Values(found), func(a, b *busy) int {
		return cmp.Or(
			cmp.Compare(b.Waited, a.Waited), cmp.Compare(b.Held, a.Held), cmp.Compare(a.Name.Name, b.Name.Name),
		)
	})
	out := make([]Name, min(len(most), maxNames))
	for i := range out {
		b, n := most[i], &out[i]
		*n = b.Name
		n.HeldBy, n.AwaitedBy = frames(b.heldBy.site), frames(b.awaitedBy.site)
	}
	return out
}

package contention

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The window: what happened in the slots of the last minute, and in the one that has begun.
const (
	slotTime = 10 * time.Second
	slots    = 7
)

// names are the busiest names, found by a space-saving sketch: a name that isn't among them takes the place of the least busy one, and its weight,
// so that one that is busy from now on stays. The weight is the time held and waited for; it halves each minute. What else is known of a name is only
// what happened since it got its place.
type names struct {
	byName map[string]*name
	list   []*name
	epoch  int64 // when the weights were last lowered
}

type name struct {
	name, group, kind string
	weight            float64     // in seconds
	slots             [slots]slot // by epoch, modulo slots

	heldBy, awaitedBy majority
}

// slot is what happened in 10 s. It isn't scaled.
type slot struct {
	epoch        int64
	grants       int64
	held, waited time.Duration
	longest      time.Duration // wait that ended in it
	events       int64         // grants and waits
}

// span is a time that has ended, by the profile's slots.
type span struct {
	from, to time.Duration // since the start of the profile
}

func (p *Profile) span(from, to time.Time) span { return span{from.Sub(p.start), to.Sub(p.start)} }

func (p *Profile) epoch(at time.Time) int64 { return int64(at.Sub(p.start) / slotTime) }

// length of the span.
func (s span) length() time.Duration { return s.to - s.from }

// parts calls f for each part of the span that is in one slot of the window that ends with it.
func (s span) parts(f func(epoch int64, d time.Duration)) {
	last := int64(s.to / slotTime)
	for epoch := max(int64(s.from/slotTime), last-slots+1); epoch <= last; epoch++ {
		from := max(s.from, time.Duration(epoch)*slotTime)
		f(epoch, min(s.to, time.Duration(epoch+1)*slotTime)-from)
	}
}

// entry returns the place of a name, which may be new. Its group and kind are those of the sample, unless they are known.
func (p *Profile) entry(s *Sample, of string, now time.Time) *name {
	ns := &p.names
	if epoch := p.epoch(now); epoch > ns.epoch {
		fall := math.Exp2(-float64(epoch-ns.epoch) * slotTime.Minutes())
		for _, n := range ns.list {
			n.weight *= fall
			n.heldBy.weight = time.Duration(float64(n.heldBy.weight) * fall)
			n.awaitedBy.weight = time.Duration(float64(n.awaitedBy.weight) * fall)
		}
		ns.epoch = epoch
	}
	if n := ns.byName[of]; n != nil {
		return n
	}
	n := &name{name: of, group: s.site.group, kind: s.site.kind}
	if len(ns.list) < maxNames {
		ns.list = append(ns.list, n)
	} else {
		least := 0
		for i, other := range ns.list {
			if other.weight < ns.list[least].weight {
				least = i
			}
		}
		n.weight = ns.list[least].weight
		delete(ns.byName, ns.list[least].name)
		ns.list[least] = n
	}
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

func (n *name) granted(epoch int64) {
	n.slot(epoch).grants++
	n.slot(epoch).events++
}

func (n *name) held(by *site, contended time.Duration, t span) {
	n.weight += t.length().Seconds()
	n.heldBy.vote(by, contended)
	t.parts(func(epoch int64, d time.Duration) { n.slot(epoch).held += d })
}

func (n *name) waited(by *site, t span) {
	n.weight += t.length().Seconds()
	n.awaitedBy.vote(by, t.length())
	t.parts(func(epoch int64, d time.Duration) { n.slot(epoch).waited += d })
	last := n.slot(int64(t.to / slotTime))
	last.longest = max(last.longest, t.length())
	last.events++
}

// majority is the site that has most of what it is told, if one has more than half, and otherwise one of the larger ones.
type majority struct {
	site   *site
	weight time.Duration
}

func (m *majority) vote(s *site, d time.Duration) {
	switch {
	case m.site == s:
		m.weight += d
	case d > m.weight:
		m.site, m.weight = s, d-m.weight
	default:
		m.weight -= d
	}
}

// Name is what happened lately to the locks with one name. Figures are scaled.
type Name struct {
	Name, Group, Kind string
	Window            time.Duration // what the other figures are of
	Samples           int64         // sampled grants and waits that they are made of
	Grants            int64
	Held              time.Duration // by all holders together
	Waited            time.Duration // by all who waited together
	LongestWait       time.Duration // of the sampled ones, those that still wait included
	HeldBy, AwaitedBy *Stack        // whose holds the others waited for most, and who waited most; nil: nobody that is known of
}

// top returns the names with what happened in the window. Those that made others wait most are the first. It is called with mu held.
func (p *Profile) top(now time.Time, stack func(*site) *Stack) []Name {
	type live struct {
		held, waited, longest time.Duration
		heldBy, awaitedBy     majority
	}
	first := p.epoch(now) - slots + 1
	begin := p.start.Add(time.Duration(max(first, 0)) * slotTime)
	running := map[*name]*live{}
	of := func(s *Sample, name string) *live {
		n := p.entry(s, name, now)
		if running[n] == nil {
			running[n] = &live{}
		}
		return running[n]
	}
	for s := range p.live {
		if !s.waitingSince.IsZero() {
			l := of(s, s.awaited)
			took := now.Sub(s.waitingSince)
			l.waited += min(took, now.Sub(begin))
			l.longest = max(l.longest, took)
			l.awaitedBy.vote(s.site, took)
			continue
		}
		for _, name := range s.names {
			l := of(s, name)
			l.held += min(now.Sub(s.heldSince), now.Sub(begin))
			l.heldBy.vote(s.site, s.contendedFor(now))
		}
	}
	rate := time.Duration(p.rate)
	out := make([]Name, 0, len(p.names.list))
	for _, n := range p.names.list {
		o := Name{Name: n.name, Group: n.group, Kind: n.kind, Window: now.Sub(begin)}
		for i := range n.slots {
			if s := &n.slots[i]; s.epoch >= first {
				o.Samples += s.events
				o.Grants += s.grants * int64(rate)
				o.Held += s.held * rate
				o.Waited += s.waited * rate
				o.LongestWait = max(o.LongestWait, s.longest)
			}
		}
		holder, waiter := n.heldBy.site, n.awaitedBy.site
		if l := running[n]; l != nil {
			o.Held += l.held * rate
			o.Waited += l.waited * rate
			o.LongestWait = max(o.LongestWait, l.longest)
			holder, waiter = cmp.Or(l.heldBy.site, holder), cmp.Or(l.awaitedBy.site, waiter)
		}
		if o.Samples == 0 && o.Held == 0 && o.Waited == 0 {
			continue
		}
		o.HeldBy, o.AwaitedBy = stack(holder), stack(waiter)
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b Name) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(b.Held, a.Held), cmp.Compare(a.Name, b.Name))
	})
	return out
}

package contention

import (
	"runtime"
	"slices"
	"strings"
	"time"
)

// Stack is what happened to the acquires of one stack, group and kind since the profile began, including the waits and
// holds that go on.
type Stack struct {
	Frames      []runtime.Frame // from the caller of lockdog outwards; nil: many stacks together
	Group, Kind string
	Counts
}

// Snapshot is a Profile at one time.
type Snapshot struct {
	Start, Time time.Time
	Rate        int
	Stacks      []Stack
	Names       []Name
}

// Snapshot returns what was counted so far.
func (p *Profile) Snapshot() Snapshot {
	if p == nil {
		return Snapshot{Time: time.Now()}
	}
	p.mu.Lock()
	now := time.Now()
	out := Snapshot{Start: p.start, Time: now, Rate: int(p.rate)}
	sum := make(map[*site]Counts, len(p.sites))
	for _, s := range p.sites {
		sum[s] = s.Counts
	}
	for s := range p.live {
		c := sum[s.site]
		if !s.waitingSince.IsZero() {
			c.Wait += s.scaled(now.Sub(s.waitingSince))
		}
		if s.contenders > 0 {
			c.Hold += s.scaled(now.Sub(s.contendedSince))
		}
		sum[s.site] = c
	}
	found := p.busy(now)
	p.mu.Unlock()

	known := make(map[*site][]runtime.Frame)
	framesOf := func(s *site) []runtime.Frame {
		if s == nil {
			return nil
		}
		if known[s] == nil {
			known[s] = frames(s.pcs)
		}
		return known[s]
	}
	out.Names = top(found, framesOf)
	for s, c := range sum {
		if c != (Counts{}) {
			out.Stacks = append(out.Stacks, Stack{framesOf(s), s.group, s.kind, c})
		}
	}
	return out
}

// ours are the packages whose functions can be in a stack between the program's code and Profile.Sample.
var ours = []string{
	"github.com/lockdog/lockdog/lock.", "github.com/lockdog/lockdog/lock/internal/contention.",
	"github.com/lockdog/lockdog/lock/leader.",
}

// frames returns the frames of a stack from the innermost one outside lockdog. If the program started Lock itself as a
// goroutine, the only such frame is runtime.goexit: then they begin with lockdog's outermost frame.
func frames(pcs []uintptr) []runtime.Frame {
	if len(pcs) == 0 {
		return nil
	}
	var all []runtime.Frame
	for it := runtime.CallersFrames(pcs); ; {
		f, more := it.Next()
		all = append(all, f)
		if !more {
			break
		}
	}
	at := 0
	for at < len(all)-1 && isOurs(all[at].Function) {
		at++
	}
	if at > 0 && all[at].Function == "runtime.goexit" {
		at--
	}
	return all[at:]
}

func isOurs(function string) bool {
	return slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(function, prefix) })
}

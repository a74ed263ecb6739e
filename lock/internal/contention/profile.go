// Package contention records which lines of code wait for locks, and which hold locks while others wait. It knows
// neither Redis nor leases: package lock reports what happens, and lock/lockprofile writes pprof's format.
//
// A Profile samples one of rate acquires, at random, and counts each sample rate times: so its figures are right on
// average. If that would be more than maxPerSecond samples a second, and rate isn't 1, it samples fewer, and counts
// each more often. All exported methods of a nil Profile and of a nil Sample do nothing. A Profile keeps at most 2,000
// stacks and 100 names, besides the sampled acquires that wait or hold now, and the locks with waiters.
package contention

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxStacks = 2000 // combinations of stack, group and kind; all further ones are counted together
	maxDepth  = 64   // frames of a stack, beginning with the innermost
	maxNames  = 100

	maxPerSecond = 1000                   // samples, on average; a rate of 1 has no limit
	pacePeriod   = 100 * time.Millisecond // the shortest time after which the probability is adapted
)

// Profile is the contention in one client.
type Profile struct {
	rate  uint32
	every atomic.Uint32 // one of so many acquires is sampled now: rate or more
	start time.Time

	mu    sync.Mutex
	paced time.Time         // when every was last adapted
	since int               // samples since then
	sites map[siteKey]*site // at most maxStacks, and that of the zero key: all further stacks together
	live  map[*Sample]struct{}
	locks map[string]*lockState // by name; only locks with a waiter or a sampled holder
	names names
}

// siteKey identifies a site.
type siteKey struct {
	pcs         [maxDepth]uintptr
	group, kind string
}

// site is what happened to the acquires of one stack, group and kind.
type site struct {
	pcs         []uintptr // nil: many stacks together
	group, kind string
	Counts
}

// Counts are the figures of a stack: estimates for all of its acquires.
type Counts struct {
	Waits, Holds  int64         // how many have begun; only holds during which others waited
	Wait, Hold    time.Duration // of holds, only the time while others waited (see OthersWait)
	Waiting, Held int64         // now
}

// lockState has the number of waiters for one lock, and the sampled acquires that hold it now.
type lockState struct {
	waiters int // sampled or not
	holders []*Sample
}

// New returns a Profile that samples one of rate acquires, on average. It returns nil if rate is 0.
func New(rate int) *Profile {
	if rate == 0 {
		return nil
	}
	now := time.Now()
	p := &Profile{
		rate: uint32(rate), start: now, paced: now,
		sites: map[siteKey]*site{{}: {}}, live: map[*Sample]struct{}{}, locks: map[string]*lockState{},
	}
	p.every.Store(p.rate)
	p.names.byName = map[string]*name{}
	return p
}

// Sample is one sampled acquire, and the hold that follows from it.
type Sample struct {
	p         *Profile
	site      *site
	standsFor int64 // how many acquires it counts for

	waitingSince time.Time // zero: it doesn't wait
	awaited      string

	heldSince      time.Time // zero: it holds nothing
	names          []string
	contenders     int       // for how many of the names others wait
	contendedSince time.Time // while contenders isn't 0
	contended      time.Duration
	counted        bool // in Counts.Holds
	ended          bool
}

// Sample returns a Sample with the caller's stack for an acquire that begins now; nil if this acquire isn't chosen.
func (p *Profile) Sample(group, kind string) *Sample {
	if p == nil {
		return nil
	}
	every := p.every.Load()
	switch n := rand.Uint32N(every); {
	case n == 0:
		return p.sample(group, kind, every)
	case n < every/p.rate: // only if every was raised: when acquires become rare, samples are too rare to lower it
		p.mu.Lock()
		p.pace(time.Now())
		p.mu.Unlock()
	}
	return nil
}

func (p *Profile) sample(group, kind string, every uint32) *Sample {
	key := siteKey{group: group, kind: kind}
	n := runtime.Callers(3, key.pcs[:]) // without Callers, sample and Sample
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since++
	p.pace(time.Now())
	s := p.sites[key]
	switch {
	case s != nil:
	case len(p.sites) <= maxStacks:
		s = &site{pcs: slices.Clone(key.pcs[:n]), group: group, kind: kind}
		p.sites[key] = s
	default:
		s = p.sites[siteKey{}]
	}
	return &Sample{p: p, site: s, standsFor: int64(every)}
}

// pace adapts every to how fast samples came since it was last adapted. mu must be held.
func (p *Profile) pace(now time.Time) {
	took := now.Sub(p.paced)
	if p.rate == 1 || took < pacePeriod {
		return
	}
	perSecond := float64(p.since) / took.Seconds()
	every := float64(p.every.Load()) * perSecond / maxPerSecond
	p.every.Store(uint32(min(max(every, float64(p.rate)), math.MaxInt32)))
	p.paced, p.since = now, 0
}

// scaled returns a duration of the sample as the estimate for all acquires of which it is one.
func (s *Sample) scaled(d time.Duration) time.Duration { return d * time.Duration(s.standsFor) }

// Waiters notes that n more calls of this client wait for a lock, sampled or not; negative: fewer.
func (p *Profile) Waiters(name string, n int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lock(name)
	before := l.waiters
	l.waiters += n
	switch now := time.Now(); {
	case before == 0 && l.waiters > 0:
		for _, s := range l.holders {
			s.contend(now)
		}
	case before > 0 && l.waiters == 0:
		for _, s := range l.holders {
			s.relax(now)
		}
	}
	p.forget(name, l)
}

// WaitStart notes that the acquire begins to wait for a lock.
func (s *Sample) WaitStart(name string) {
	if s == nil {
		return
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if !s.waitingSince.IsZero() || s.ended {
		return
	}
	s.waitingSince, s.awaited = time.Now(), name
	s.site.Waits += s.standsFor
	s.site.Waiting += s.standsFor
	s.p.live[s] = struct{}{}
}

// WaitEnd notes that the acquire no longer waits, whatever the outcome.
func (s *Sample) WaitEnd() {
	if s == nil {
		return
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.waitEnd(time.Now())
}

func (s *Sample) waitEnd(now time.Time) {
	if s.waitingSince.IsZero() {
		return
	}
	s.site.Wait += s.scaled(now.Sub(s.waitingSince))
	s.site.Waiting -= s.standsFor
	s.p.entry(s, s.awaited, now).waited(s, s.p.span(s.waitingSince, now))
	s.waitingSince = time.Time{}
	s.settle()
}

// Granted notes that the acquire got the locks with these names.
func (s *Sample) Granted(names ...string) {
	if s == nil {
		return
	}
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s.waitEnd(now)
	if s.ended || !s.heldSince.IsZero() {
		return
	}
	s.heldSince, s.names = now, slices.Clone(names) // without Clone, calls with a nil Sample would allocate, too
	s.site.Held += s.standsFor
	p.live[s] = struct{}{}
	for _, name := range names {
		l := p.lock(name)
		l.holders = append(l.holders, s)
		if l.waiters > 0 {
			s.contend(now)
		}
	}
}

// OthersWait notes that other clients waited for one of the locks, so the whole hold counts. Call it before End.
func (s *Sample) OthersWait() {
	if s == nil {
		return
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.heldSince.IsZero() {
		return
	}
	s.count()
	now := time.Now()
	if s.contenders > 0 {
		s.contendedSince = now
	}
	s.site.Hold += s.scaled(now.Sub(s.heldSince) - s.contended)
	s.contended = now.Sub(s.heldSince)
}

// End notes that the locks are no longer held. Later calls do nothing.
func (s *Sample) End() {
	if s == nil {
		return
	}
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if s.ended {
		return
	}
	s.waitEnd(now)
	s.ended = true
	if s.heldSince.IsZero() {
		return
	}
	if s.contenders > 0 {
		s.contenders = 1
		s.relax(now)
	}
	s.site.Held -= s.standsFor
	for _, name := range s.names {
		l := p.lock(name)
		if i := slices.Index(l.holders, s); i >= 0 {
			l.holders = slices.Delete(l.holders, i, i+1)
		}
		p.forget(name, l)
		p.entry(s, name, now).held(s, p.span(s.heldSince, now))
	}
	s.heldSince = time.Time{}
	s.settle()
}

// contend notes that others now wait for one more of the holder's locks.
func (s *Sample) contend(now time.Time) {
	if s.contenders++; s.contenders == 1 {
		s.count()
		s.contendedSince = now
	}
}

// relax notes that nobody waits any more for one of the holder's locks.
func (s *Sample) relax(now time.Time) {
	if s.contenders--; s.contenders == 0 {
		s.contended += now.Sub(s.contendedSince)
		s.site.Hold += s.scaled(now.Sub(s.contendedSince))
	}
}

// contendedFor returns how long others have waited during the hold.
func (s *Sample) contendedFor(now time.Time) time.Duration {
	if s.contenders > 0 {
		return s.contended + now.Sub(s.contendedSince)
	}
	return s.contended
}

// count counts the hold in Counts.Holds, once.
func (s *Sample) count() {
	if !s.counted {
		s.counted = true
		s.site.Holds += s.standsFor
	}
}

// settle removes a sample that neither waits nor holds.
func (s *Sample) settle() {
	if s.waitingSince.IsZero() && s.heldSince.IsZero() {
		delete(s.p.live, s)
	}
}

func (p *Profile) lock(name string) *lockState {
	l := p.locks[name]
	if l == nil {
		l = &lockState{}
		p.locks[name] = l
	}
	return l
}

func (p *Profile) forget(name string, l *lockState) {
	if l.waiters == 0 && len(l.holders) == 0 {
		delete(p.locks, name)
	}
}

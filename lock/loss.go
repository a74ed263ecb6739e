package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// lookouts is what a client with WithLossNotifications has: the keys it holds, and a lookout for each server that has some. Nil
// where the client hasn't the option.
type lookouts struct {
	c       *Client
	tracker backend.Tracker
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	warned  sync.Once

	mu   sync.Mutex // taken before a grant's
	keys map[string]*heldKey
	at   map[string]*lookout // by node
}

// heldKey is a key that shows who holds a lock, and the grants that want to be in it: more than one of a semaphore with
// leases, or of readers.
type heldKey struct {
	key    string
	sorted bool   // a sorted set, else a hash
	lock   string // the key by which its node is known
	grants []*grant
	at     *lookout
}

// newLookouts returns nil where nobody could change a key unnoticed.
func newLookouts(c *Client) *lookouts {
	t, ok := c.backend.(backend.Tracker)
	if !ok {
		return nil
	}
	s := &lookouts{c: c, tracker: t, keys: make(map[string]*heldKey), at: make(map[string]*lookout)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// add looks after a grant from now on. One that isn't renewed can't be verified.
func (s *lookouts) add(g *grant) {
	if s == nil || g.lock.cfg.fixed {
		return
	}
	key := g.lock.renewedKey()
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	h := s.keys[key]
	if h == nil {
		h = &heldKey{key: key, sorted: g.lock.kind.holding == script.HoldsPermit, lock: g.lock.key}
		s.keys[key] = h
	}
	h.grants = append(h.grants, g)
	s.assign(h)
	h.at.look(h, h.at.soon)
	s.mu.Unlock()
	if g.ended() != nil { // remove may have been before
		s.remove(g)
	}
}

// remove forgets a grant.
func (s *lookouts) remove(g *grant) {
	if s == nil || g.lock.cfg.fixed {
		return
	}
	key := g.lock.renewedKey()
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.keys[key]
	if h == nil {
		return
	}
	if i := slices.Index(h.grants, g); i >= 0 {
		h.grants = slices.Delete(h.grants, i, i+1)
	}
	if len(h.grants) == 0 {
		delete(s.keys, key)
		h.at.forget(h)
	}
}

// assign gives a key to the lookout of the node that it lives on now. It is called with mu held.
func (s *lookouts) assign(h *heldKey) {
	node := s.c.backend.Node(h.lock)
	if h.at != nil && (h.at.node == node || node == "") {
		return
	}
	if h.at != nil {
		h.at.forget(h)
	}
	if h.at = s.at[node]; h.at == nil {
		h.at = &lookout{all: s, node: node, kick: make(chan struct{}, 1), soon: make(chan struct{}, 1), due: make(map[*heldKey]struct{})}
		s.at[node] = h.at
		s.running.Go(h.at.run)
	}
	h.at.held++
}

// resume says whether a lookout has something to do, once it has given away what lives elsewhere by now.
func (s *lookouts) resume(lo *lookout) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.keys {
		if h.at != lo {
			continue
		}
		if s.assign(h); h.at != lo {
			h.at.news(h)
		}
	}
	if lo.held > 0 && s.ctx.Err() == nil {
		return true
	}
	delete(s.at, lo.node)
	return false
}

// holds says whether a lookout has something to look at.
func (s *lookouts) holds(lo *lookout) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lo.held > 0
}

// changed notes what a server told: these keys have changed, or all may have.
func (s *lookouts) changed(lo *lookout, keys []string, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if h := s.keys[key]; h != nil && h.at == lo {
			lo.news(h)
		}
	}
	if !all {
		return
	}
	for _, h := range s.keys {
		if h.at == lo {
			lo.news(h)
		}
	}
}

// again has keys looked at once more that are held yet.
func (s *lookouts) again(keys []*heldKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range keys {
		if s.keys[h.key] == h {
			h.at.news(h)
		}
	}
}

// glance is a key that is about to be looked at.
type glance struct {
	*heldKey
	grants    []*grant
	deadlines []time.Time // theirs, before the look
}

// take takes some of what a lookout has to look at. What lives elsewhere by now is another's.
func (s *lookouts) take(lo *lookout) (some []glance, looks []backend.Look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range lo.due {
		delete(lo.due, h)
		if s.assign(h); h.at != lo {
			h.at.news(h)
			continue
		}
		gl := glance{h, slices.Clone(h.grants), make([]time.Time, len(h.grants))}
		members := make([]string, len(h.grants))
		for i, g := range h.grants {
			gl.deadlines[i], members[i] = g.wd.Deadline(), g.bid.member()
		}
		some, looks = append(some, gl), append(looks, backend.Look{Key: h.key, Sorted: h.sorted, Members: members})
		if len(some) == looksAtOnce {
			break
		}
	}
	return some, looks
}

// count counts commands.
func (s *lookouts) count(n int) {
	for range n {
		s.c.rec.Command(telemetry.PurposeSubscribe)
	}
}

// refused says once that a server won't tell.
func (s *lookouts) refused(err error) {
	s.warned.Do(func() {
		s.c.logger().Warn("lockdog: Redis refuses WithLossNotifications; holders are told of a loss at the next renewal", "error", err.Error())
	})
}

// close ends them.
func (s *lookouts) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
}

package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// bundle makes one lease of several: of all locks of a Multi, or of one lock at most nodes of a Quorum. Its members are
// leases as others are, each with a grant, renewals and telemetry of its own; the bundle adds up what becomes of them. It lives as long
// as need of them do.
//
// Members tell it of their ends with the mu of their grants held. So its own mu is taken after those, and never before.
type bundle struct {
	name  string
	need  int
	nodes bool // the members are one lock at several nodes, not several locks
	whole Lease

	mu       sync.Mutex
	size     int // members, those yet to come included
	members  []*member
	off      int            // of the members: how many have lost the permission to work
	gone     int            // ... and how many have ended
	lost     []*LostError   // how they did
	at       []string       // ... and where
	canceled *CanceledError // how the last that lives yet lost its permission
	err      error          // how the bundle ended, nil while it lives or when it was released
}

// member is a lease of a bundle. What it has besides is guarded by the bundle's mu.
type member struct {
	*Lease
	off, gone bool
}

// newBundle returns a bundle for size members, taken with ctx by lk and others like it.
func newBundle(ctx context.Context, lk *lock, name string, need, size int) *bundle {
	b := &bundle{name: name, need: need, size: size}
	b.whole.bundle, b.whole.ctx = b, lk.follows(ctx)
	return b
}

// add makes a lease a member. It says false when that comes too late, for the bundle has ended, or lost its permission.
func (b *bundle) add(l *Lease) bool {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	b.mu.Lock()
	if b.whole.cause != nil {
		b.mu.Unlock()
		return false
	}
	b.members = append(b.members, &member{Lease: l})
	b.size = max(b.size, len(b.members))
	b.mu.Unlock()
	l.bundle = b
	if l.cause != nil { // already
		b.stopped(l, l.cause)
	}
	if err := l.fate(); err != nil {
		b.ended(l, err)
	}
	return true
}

// without says that a member that was to come won't.
func (b *bundle) without() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size--
}

// find returns a member. It is called with mu held.
func (b *bundle) find(l *Lease) *member {
	return b.members[slices.IndexFunc(b.members, func(m *member) bool { return m.Lease == l })]
}

// stopped is told when a member has lost the permission to work.
func (b *bundle) stopped(l *Lease, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole.released {
		return
	}
	m := b.find(l)
	m.off = true
	b.off++
	var canceled *CanceledError
	if errors.As(cause, &canceled) {
		b.canceled = canceled
	} else {
		b.note(m, cause)
	}
	b.look()
}

// ended is told when a member has ended.
func (b *bundle) ended(l *Lease, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole.released {
		return
	}
	if m := b.find(l); !m.gone {
		b.note(m, err)
		b.look()
	}
}

// note counts a member that has ended. It is called with mu held.
func (b *bundle) note(m *member, err error) {
	m.gone = true
	b.gone++
	var lost *LostError
	if errors.As(err, &lost) {
		b.lost, b.at = append(b.lost, lost), append(b.at, m.g.node())
	}
}

// look ends the bundle, or its permission to work, when too few members are left. It is called with mu held.
func (b *bundle) look() {
	switch {
	case b.err == nil && b.size-b.gone < b.need:
		b.err = wrapError(b.name, "hold", ErrClosed) // unless it was lost
		if len(b.lost) > 0 {
			b.err = b.loss()
		}
		b.whole.stop(b.err)
		b.whole.end()
		go b.cut(ReasonContext, b.err)
	case b.whole.cause == nil && b.size-b.off < b.need:
		c := &CanceledError{b.name, b.canceled.Reason, b.canceled.err}
		b.whole.stop(c)
		if c.Reason != ReasonClosed { // a closing client keeps renewing while its holders wind down
			go b.cut(c.Reason, c.err)
		}
	}
}

// loss is what the loss of the bundle is said to be. It is called with mu held.
func (b *bundle) loss() *LostError {
	last := b.lost[len(b.lost)-1]
	if !b.nodes {
		return &LostError{Name: b.name, Cause: last.Cause, err: last}
	}
	all := make(nodeErrors, len(b.lost))
	for i, lost := range b.lost {
		all[i] = atNode(b.at[i], lost)
	}
	return &LostError{Name: b.name, Cause: last.Cause, err: all}
}

// cut takes the permission to work from the members that have it yet: what there is left of their leases is time to wind
// down. Else one whose holder doesn't release it, having lost another, would be renewed for ever.
func (b *bundle) cut(reason Reason, err error) {
	for _, m := range b.all() {
		m.cut(reason, &CanceledError{m.Name(), reason, err})
	}
}

// all are the members there are by now.
func (b *bundle) all() []*member {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.members[:len(b.members):len(b.members)]
}

func (b *bundle) owner() string { return b.all()[0].Owner() }

func (b *bundle) token() (token int64) {
	for _, m := range b.all() {
		token = max(token, m.Token())
	}
	return token
}

func (b *bundle) tokens() map[string]int64 {
	tokens := make(map[string]int64)
	for _, m := range b.all() {
		tokens[m.Name()] = max(tokens[m.Name()], m.Token())
	}
	return tokens
}

func (b *bundle) heartbeat() {
	for _, m := range b.all() {
		m.Heartbeat()
	}
}

// check looks at the clock for every member.
func (b *bundle) check() {
	for _, m := range b.all() {
		m.check()
	}
}

// ctxEnded is called when the ctx that the leases follow has ended.
func (b *bundle) ctxEnded() {
	for _, m := range b.all() {
		m.ctxEnded()
	}
}

// of is the member for one lock, nil if there is none.
func (b *bundle) of(c *Client, key string) *Lease {
	for _, m := range b.all() {
		if l := m.of(c, key); l != nil {
			return l
		}
	}
	return nil
}

// deadline is until when need members are trusted.
func (b *bundle) deadline() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var live, all []time.Time
	for _, m := range b.members {
		d := m.Deadline()
		all = append(all, d)
		if !m.gone {
			live = append(live, d)
		}
	}
	if len(live) < b.need { // it has ended
		live = all
	}
	if len(live) < b.need {
		return time.Time{}
	}
	slices.SortFunc(live, func(a, b time.Time) int { return b.Compare(a) })
	return live[b.need-1]
}

// release gives all members back.
func (b *bundle) release(ctx context.Context) error {
	b.check()
	b.mu.Lock()
	if b.whole.released {
		b.mu.Unlock()
		return ErrReleased
	}
	b.whole.released = true
	b.whole.end()
	b.whole.stop(ErrReleased)
	ended, members := b.err, b.members
	b.mu.Unlock()

	errs := b.giveBack(ctx, members)
	if ended != nil {
		return ended
	}
	return b.sum(members, errs)
}

// giveUp releases what there is of a bundle that isn't to be.
func (b *bundle) giveUp(ctx context.Context) {
	if len(b.all()) > 0 {
		leave(ctx, b.release)
	}
}

// leave releases something whose holder doesn't ask what becomes of it, and waits for Redis no longer than ctx does.
func leave(ctx context.Context, release func(context.Context) error) {
	if ctx.Err() != nil {
		go func() { _ = release(context.WithoutCancel(ctx)) }()
		return
	}
	_ = release(ctx) // why the lock isn't had is said already; telemetry says the rest
}

// sum is what the release of the members comes to, as far as it is known.
func (b *bundle) sum(members []*member, errs []error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	freed, failed := 0, nodeErrors(nil)
	for i, err := range errs {
		m := members[i]
		var lost *LostError
		switch {
		case err == nil:
			freed++
		case errors.As(err, &lost) && !m.gone:
			b.note(m, err)
		case !errors.As(err, &lost) && !b.nodes:
			failed = append(failed, err)
		case !errors.As(err, &lost):
			failed = append(failed, atNode(m.g.node(), err))
		}
	}
	switch {
	case freed >= b.need:
		return nil
	case b.size-b.gone < b.need && len(b.lost) > 0:
		b.err = b.loss()
		return b.err
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

// giveBack releases the members and says what became of each. First it stops all renewals.
func (b *bundle) giveBack(ctx context.Context, members []*member) []error {
	errs := make([]error, len(members))
	var held []int // those of which this was the last handle
	for i, m := range members {
		var last bool
		if last, errs[i] = m.g.leave(m.Lease); last {
			held = append(held, i)
		}
	}
	switch {
	case len(held) == 0:
	case b.nodes:
		b.giveBackAtNodes(ctx, members, held, errs)
	case len(held) == 1 || !giveBackTogether(ctx, members, held, errs):
		var all sync.WaitGroup
		for _, i := range held {
			all.Go(func() { errs[i] = members[i].g.giveBack(ctx) })
		}
		all.Wait()
	}
	return errs
}

// giveBackAtNodes returns when a majority is free. The nodes that haven't answered by then have their timeout yet, after which
// the sweepers go on.
func (b *bundle) giveBackAtNodes(ctx context.Context, members []*member, held []int, errs []error) {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		i   int
		err error
	}
	results := make(chan result, len(held))
	var all sync.WaitGroup
	for _, i := range held {
		errs[i] = errPending
	}
	for _, i := range held {
		all.Go(func() { results <- result{i, members[i].g.giveBack(ctx)} })
	}
	freed := 0
	for _, err := range errs {
		if err == nil { // its lock has other handles yet
			freed++
		}
	}
	for range held {
		r := <-results
		if errs[r.i] = r.err; r.err == nil {
			freed++
		}
		if freed >= b.need {
			break
		}
	}
	patience := time.AfterFunc(nodeTimeout(members[0].g.lock.cfg.lease), cancel)
	go func() {
		all.Wait()
		patience.Stop()
		cancel()
	}()
}

// errPending stands for an answer that wasn't waited for.
var errPending = errors.New("lockdog: not waited for")

// giveBackTogether releases the members in one call to Redis, where that is possible, and says whether it was.
func giveBackTogether(ctx context.Context, members []*member, held []int, errs []error) bool {
	first := members[held[0]].g
	c := first.lock.c
	keys := make([]string, len(held))
	for n, i := range held {
		lk := members[i].g.lock
		if lk.kind.release != releaseScript { // it joined what was taken as another kind of lock
			return false
		}
		keys[n] = lk.key
	}
	if !c.together(keys) || slices.ContainsFunc(keys, c.waits.busy) { // who waits here may be handed the lock
		return false
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	deadline := first.wd.Deadline()
	bids, rels := make([]*bid, len(held)), make([]telemetry.Release, len(held))
	var sctx context.Context // carries the span of the first
	for n, i := range held {
		g := members[i].g
		bids[n] = g.bid
		rctx, rel := c.rec.StartRelease(ctx, &g.hold)
		if rels[n] = rel; n == 0 {
			sctx = rctx
		}
		if d := g.wd.Deadline(); d.Before(deadline) {
			deadline = d
		}
	}
	freed, failed := c.transport.releaseAll(sctx, rels, bids, deadline)
	for n, i := range held {
		errs[i] = members[i].g.given(&rels[n], freed[n], failed[n])
	}
	return true
}

// nodeErrors are what failed at several nodes.
type nodeErrors []error

// Error implements error.
func (e nodeErrors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap makes them match what each of them does.
func (e nodeErrors) Unwrap() []error { return e }

func atNode(node string, err error) error { return fmt.Errorf("at %s: %w", node, err) }

// node names the server that has the grant.
func (g *grant) node() string { return g.lock.node() }

func (lk *lock) node() string { return lk.c.backend.Node(lk.key) }

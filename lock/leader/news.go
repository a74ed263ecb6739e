package leader

import (
	"context"
	"strings"
	"sync"
	"time"
)

// firstLook is how long after the start, and after each term, Run first asks who leads. By then there usually is a
// leader. If this process has been elected in the meantime, Run doesn't need to ask.
const firstLook = 100 * time.Millisecond

// news decides which leaders OnNewLeader is called with. A reply of Redis is ignored if a term of this process has
// begun or ended since Redis was asked.
type news struct {
	mu    sync.Mutex
	turns int    // beginnings and ends of terms of this process so far
	last  string // client of the leader that OnNewLeader was last called with
}

// now returns the value for tell's parameter asked. Call it before asking Redis who leads.
func (n *news) now() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.turns
}

// turn counts the beginning or the end of a term, and calls f with mu held, to add the callbacks in order.
func (n *news) turn(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.turns++
	f()
}

// tell adds a call of OnNewLeader if the owner's client isn't the last one reported, and no term has begun or ended
// since now returned asked.
func (r *run) tell(owner string, asked int) {
	n := &r.news
	n.mu.Lock()
	defer n.mu.Unlock()
	client, id := clientOf(owner)
	if r.cfg.onNewLeader == nil || owner == "" || asked != n.turns || client == n.last {
		return
	}
	n.last = client
	r.callbacks.add(func() { r.cfg.onNewLeader(id) })
}

// clientOf returns what is common to all owners of a client, and the client's id. An owner is "<client
// id>:<random>-<seq>", with ":write" after it for a writer of an RWMutex. Redisson's is "<uuid>:<thread>".
func clientOf(owner string) (client, id string) {
	client = strings.TrimSuffix(owner, ":write")
	colon := strings.LastIndexByte(client, ':')
	if colon < 0 {
		return client, client
	}
	id = client[:colon]
	if dash := strings.LastIndexByte(client, '-'); dash > colon {
		return client[:dash], id
	}
	return id, id
}

// watch starts a goroutine that asks who leads while this process doesn't. It does nothing without OnNewLeader. stop
// ends the goroutine.
func (r *run) watch() (stop func()) {
	if r.cfg.onNewLeader == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(r.ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { r.watchUntil(ctx) })
	return func() {
		cancel()
		watcher.Wait()
	}
}

func (r *run) watchUntil(ctx context.Context) {
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.look:
			timer.Reset(firstLook)
			continue
		case <-timer.C:
		}
		if r.IsLeader() {
			continue // until r.look reports the end of this term
		}
		asked := r.news.now()
		// An error is ignored: the next look comes soon, and lockdog.errors counts failed requests.
		if h, err := r.cfg.inspector.Inspect(ctx); err == nil && h.Held {
			r.tell(h.Owner, asked)
		}
		timer.Reset(shortened(r.cfg.interval, 10))
	}
}

// callbacks calls functions one at a time, in the order in which they were added, in a goroutine that ends when there
// are none left.
type callbacks struct {
	mu    sync.Mutex
	queue []func()
	busy  bool
	calls sync.WaitGroup
}

func (c *callbacks) add(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, f)
	if !c.busy {
		c.busy = true
		c.calls.Go(c.call)
	}
}

func (c *callbacks) call() {
	ended := false
	defer func() {
		if !ended { // a callback has called runtime.Goexit
			c.calls.Go(c.call)
		}
	}()
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.busy, ended = false, true
			c.mu.Unlock()
			return
		}
		f := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		f()
	}
}

// wait returns after all callbacks have returned. After a call of wait, none may be added.
func (c *callbacks) wait() { c.calls.Wait() }

package leader

import (
	"context"
	"strings"
	"sync"
	"time"
)

// firstLook is how long after the start, and after a term, it is asked who leads: mostly somebody does by then, and this process
// isn't asking in vain while its own election is under way.
const firstLook = 100 * time.Millisecond

// news is what was told, and orders it. An answer of Redis that is older than a term's beginning or end is no news.
type news struct {
	mu    sync.Mutex
	turns int    // counts beginnings and ends of terms of this process
	last  string // the client that leads, as told last
}

// now is to be given to tell by those who are about to ask.
func (n *news) now() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.turns
}

// turn is the beginning or the end of a term; f tells of it.
func (n *news) turn(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.turns++
	f()
}

// tell has OnNewLeader called if the owner, seen at asked or later, belongs to another client than the one told last.
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

// clientOf splits an owner, "<client id>:<random>-<seq>", which an RWMutex's writer follows by ":write": client is what all owners of one
// client have in common. Redisson's is "<uuid>:<thread>".
func clientOf(owner string) (client, id string) {
	client = strings.TrimSuffix(owner, ":write")
	colon := strings.LastIndexByte(client, ':')
	if colon < 0 {
		return client, client
	}
	id = client[:colon]
	if dash := strings.LastIndexByte(client, '-'); dash > colon {
		client = client[:dash]
	}
	return client, id
}

// watch asks who leads while this process doesn't, if anybody wants to know. The function returned ends it.
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
			continue // until look says that it was deposed
		}
		asked := r.news.now()
		// Why Redis doesn't say, the lock's telemetry has.
		if h, err := r.cfg.inspector.Inspect(ctx); err == nil && h.Held {
			r.tell(h.Owner, asked)
		}
		timer.Reset(shortened(r.cfg.interval, 10))
	}
}

// callbacks are called one at a time, in the order in which they were added, by a goroutine that lives while there are any.
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
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.busy = false
			c.mu.Unlock()
			return
		}
		f := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		f()
	}
}

// wait returns when all have returned. None may be added after it was called.
func (c *callbacks) wait() { c.calls.Wait() }

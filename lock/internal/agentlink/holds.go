package agentlink

import (
	"context"
	"sync"
	"time"
)

// tellAfter is how long a lock may be held before the agent is told. One that is held for less costs nothing.
const tellAfter = 5 * time.Millisecond

// holds are the locks that the client holds. A goroutine tells the agent of them, so nobody waits for that.
type holds struct {
	mu      sync.Mutex
	held    map[string]*Hold    // by owner
	told    map[string]struct{} // the owners that the agent at the other end of conn knows
	conn    *conn               // nil: none yet, or it has ended
	changed map[string]struct{} // the owners in only one of held and told
	done    chan struct{}       // closed when the goroutine has ended; nil: it hasn't begun

	look chan struct{} // makes the goroutine look at changed
	ctx  context.Context
	end  context.CancelFunc
}

// Hold makes the agent free a lock if this process dies, until Free is called for its owner. It returns at once; the
// agent hears of it after tellAfter. If there are MaxHolds already, it does nothing, nor with a nil Link.
func (l *Link) Hold(h *Hold) {
	if l == nil {
		return
	}
	l.holds.mu.Lock()
	defer l.holds.mu.Unlock()
	if len(l.holds.held) == MaxHolds || l.holds.ctx.Err() != nil {
		return
	}
	l.holds.held[h.Owner] = h
	l.holds.changed[h.Owner] = struct{}{}
	if l.holds.done == nil {
		l.holds.done = make(chan struct{})
		go l.tellChanges()
	}
	l.holds.wake()
}

// Free ends Hold. The lock has been released, or its lease is over.
func (l *Link) Free(owner string) {
	if l == nil {
		return
	}
	l.holds.mu.Lock()
	defer l.holds.mu.Unlock()
	delete(l.holds.held, owner)
	if _, told := l.holds.told[owner]; told {
		l.holds.changed[owner] = struct{}{}
		l.holds.wake()
	} else {
		delete(l.holds.changed, owner)
	}
}

// wake wakes the goroutine.
func (h *holds) wake() {
	select {
	case h.look <- struct{}{}:
	default:
	}
}

// connected notes a new connection. The agent at its other end knows nothing yet.
func (h *holds) connected(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn = c; c.isClosed() { // disconnected was called before
		h.conn = nil
	}
	h.forget()
}

// disconnected notes the end of a connection.
func (h *holds) disconnected(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == c {
		h.conn = nil
		h.forget()
	}
}

// forget notes that the agent knows nothing. mu must be held.
func (h *holds) forget() {
	clear(h.told)
	clear(h.changed)
	for owner := range h.held {
		h.changed[owner] = struct{}{}
	}
	h.wake()
}

// next returns what to tell next, nil if the agent of c knows everything. It counts as told.
func (h *holds) next(c *conn) *Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.changed) == 0 || h.conn != c {
		return nil
	}
	r, size := &Request{}, 0
	for owner := range h.changed {
		if hold := h.held[owner]; hold != nil {
			r.Held = append(r.Held, *hold)
			h.told[owner] = struct{}{}
			size += hold.Bytes()
		} else {
			r.Freed = append(r.Freed, owner)
			delete(h.told, owner)
		}
		delete(h.changed, owner)
		if len(r.Held)+len(r.Freed) == MaxLeases || size > MaxLine/2 {
			break
		}
	}
	return r
}

// pending reports whether there is something to tell and, if so, whether there is a connection.
func (h *holds) pending() (changed, connected bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.changed) > 0, h.conn != nil
}

// tellChanges tells the agent what has changed, until Close. After a failure it rests, as Renew does. If the agent
// hangs up again and again, it connects once per leastRest.
func (l *Link) tellChanges() {
	defer close(l.holds.done)
	var dialed time.Time
	failed := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.holds.look:
			select {
			case <-time.After(tellAfter):
			case <-l.holds.ctx.Done():
			}
		case <-timer.C:
		case <-l.holds.ctx.Done():
			if changed, connected := l.holds.pending(); changed && connected { // so the agent frees nothing in vain
				_ = l.tell(context.WithoutCancel(l.holds.ctx))
			}
			return
		}
		began := time.Now()
		changed, connected := l.holds.pending()
		rest := time.Duration(0)
		if changed && !connected {
			rest = max(l.restsFor(began), dialed.Add(leastRest).Sub(began))
		}
		if changed && rest <= 0 {
			if !connected {
				dialed = began
			}
			switch err := l.tell(l.holds.ctx); {
			case l.holds.ctx.Err() != nil:
			case err != nil:
				failed = true
				l.Told(err)
				l.Rest(err)
				rest = l.restsFor(time.Now())
			default:
				l.succeeded(began)
				if failed {
					failed = false
					l.Told(nil)
				}
			}
		}
		if rest > 0 {
			timer.Reset(rest)
		}
	}
}

// tell tells the agent what has changed. It connects if there is no connection. In between, Renew may send.
func (l *Link) tell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, MaxTime)
	defer cancel()
	for done := false; !done; {
		if err := l.use(ctx, false, func(c *conn) error {
			r := l.holds.next(c)
			if done = r == nil; done {
				return nil
			}
			return c.write(ctx, r)
		}); err != nil {
			return err
		}
	}
	return nil
}

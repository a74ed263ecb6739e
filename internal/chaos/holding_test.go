//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/lock"
)

// holding is one lease, from its grant to its end.
type holding struct {
	w     *worker
	id    string
	lease *lock.Lease
	ctx   context.Context
	job   job

	tokens  map[string]int64
	until   time.Time    // the last deadline seen
	live    history.Time // when the Context was last known to be live
	noted   history.Time // ... as it is in the diary
	wrote   time.Time
	renewed bool
	dead    bool
}

const (
	liveEvery  = 20 * time.Millisecond // how often the diary is told
	writeEvery = 4 * time.Millisecond
	glance     = time.Millisecond // how often the Context is asked
)

func (h *holding) note(what string, at history.Time, why string) {
	h.w.note(history.Event{At: at, What: what, ID: h.id, Why: why})
}

// hold does the work, releases, and notes how the lease ended.
func (h *holding) hold() {
	h.until = h.lease.Deadline()
	h.look()
	h.write()
	if inner := h.job.inner; inner != nil && !h.dead {
		inner.within = h
		h.w.do(*inner)
		h.look()
	}
	over := time.Now().Add(h.job.hold)
	if h.job.lazy {
		timer := time.NewTimer(h.job.hold)
		select {
		case <-timer.C:
		case <-h.ctx.Done():
		case <-h.w.c.settle:
		}
		timer.Stop()
		h.look()
	}
	for !h.dead && !h.enough(over) {
		if h.look(); h.dead {
			break
		}
		if time.Since(h.wrote) >= writeEvery {
			h.write()
		}
		h.lease.Heartbeat()
		time.Sleep(glance)
	}
	if h.dead {
		// It was writing, say, and didn't look. Tokens are for this.
		h.write()
	} else {
		h.look()
	}
	h.flush()
	h.release()
}

// enough reports whether the work is done.
func (h *holding) enough(over time.Time) bool {
	switch {
	case h.job.careful:
		return h.renewed
	case h.w.c.settling.Load():
		return true
	}
	return !time.Now().Before(over)
}

// look asks the Context whether it is live.
func (h *holding) look() {
	if h.dead {
		return
	}
	at, instant := now(), time.Now()
	err := h.ctx.Err()
	until := h.lease.Deadline()
	if err != nil {
		h.dead = true
		h.flush()
		h.note(history.Dead, at, whyEnded(context.Cause(h.ctx)))
		return
	}
	if instant.After(until) {
		h.w.note(history.Event{At: at, What: history.Overdue, ID: h.id, Until: onClock(until)})
	}
	h.live = at
	if until.After(h.until) {
		h.until, h.renewed = until, true
		h.w.note(history.Event{At: at, What: history.Renewed, ID: h.id, Until: onClock(until)})
	}
	if h.noted == 0 || h.live.Sub(h.noted) >= liveEvery {
		h.flush()
	}
}

// flush has the diary know when the Context was last live.
func (h *holding) flush() {
	if h.live > h.noted {
		h.note(history.Live, h.live, "")
		h.noted = h.live
	}
}

func (h *holding) write() {
	h.wrote = time.Now()
	if h.job.kind.shared {
		return
	}
	for name, token := range h.tokens {
		if _, err := h.w.store.write(h.id, name, h.lease.Owner(), token); err != nil {
			h.note(history.Complain, now(), "the store: "+err.Error())
		}
	}
}

func (h *holding) release() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	known := ""
	if err := h.lease.Err(); err != nil {
		known = why(context.Background(), err)
	}
	h.note(history.Freeing, now(), known)
	err := h.lease.Release(ctx)
	h.note(history.Freed, now(), why(context.Background(), err))
	if !h.dead {
		h.look()
		if !h.dead { // the check of endings will say so
			h.note(history.Complain, now(), "the Context is live after Release")
		}
	}
	if err := h.lease.Err(); errors.Is(err, lock.ErrReleased) {
		h.note(history.Over, now(), history.WhyReleased)
	} else {
		h.note(history.Over, now(), why(context.Background(), err))
	}
}

package watchdog

import (
	"math"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// tick is the longest time between two passes, as long as the engine has leases, or has had one since the last pass. So
// TickAge shows that the scheduler works.
const tick = time.Second

// run is the scheduler: the only goroutine that waits for the clock. It calls no foreign code. A renewal runs through
//
//	Engine.pass → node.makeCalls (enqueue, pick) → startCall → makeCall → Config.Renew → finishCall → replan
func (e *Engine) run() {
	defer e.wg.Done()
	timer := time.NewTimer(tick) // reset before each wait
	defer timer.Stop()
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return
		}
		now := e.now()
		e.pass(now)
		wait := time.Duration(e.wakeAt - now)
		e.mu.Unlock()
		switch {
		case wait <= 0:
			continue
		case wait < math.MaxInt64/2:
			timer.Reset(wait)
		default: // there are no leases: set no timer
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-e.kick:
		case <-e.ctx.Done():
			return
		}
	}
}

// wake moves the scheduler's next pass to the time at, and wakes the scheduler. It does nothing if the next pass isn't
// later than at.
func (e *Engine) wake(at int64) {
	if at >= e.wakeAt {
		return
	}
	e.wakeAt = at
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// pass does all that is due: deadlines first, so that no call is made for a lease that has run out. If very many leases
// have run out, the rest is left to further passes, which follow at once.
func (e *Engine) pass(now int64) {
	e.wakeAt = math.MinInt64 // no kick during the pass: its end sets wakeAt
	if !e.losePastDeadline(now) {
		e.notify()
		e.wakeAt = now
		return
	}
	for e.alarms.minAt() <= now {
		l := e.alarms.entries[0].item
		e.alarms.remove(l)
		e.callbacks.alarms = append(e.callbacks.alarms, l)
	}
	for e.agenda.minAt() <= now {
		e.agenda.entries[0].item.makeCalls(now)
	}
	// A client that takes one lock after the other has no lease in between. It must not wake the scheduler at each
	// acquire: so the scheduler rests only if no lease was added to an empty engine since the last pass.
	e.idle = e.leases == 0 && !e.began
	e.began = false
	if e.idle || now-e.lastSweep >= int64(tick) {
		e.sweep()
		e.lastSweep = now
	}
	e.notify()
	e.lastPass = now
	e.wakeAt = min(e.watches.minAt(), e.unrenewed.minAt(), e.alarms.minAt(), e.agenda.minAt())
	if !e.idle {
		e.wakeAt = min(e.wakeAt, now+int64(tick))
	}
}

// losePastDeadline declares lost the leases whose deadline is reached. After some thousands it stops and returns false,
// so that mu isn't held too long when all leases are lost at once.
func (e *Engine) losePastDeadline(now int64) bool {
	const stride = 4096
	for done := 0; done < stride; {
		switch {
		case e.watches.minAt() <= now:
			c := e.watches.entries[0].item
			done += len(c.leases)
			e.losePastDeadlineIn(c, now)
		case e.unrenewed.minAt() <= now:
			done++
			e.loseAtDeadline(e.unrenewed.entries[0].item)
		default:
			return true
		}
	}
	return false
}

// losePastDeadlineIn declares lost those leases of a cohort whose deadlines are reached. There may be none: see
// cohort.nearest.
func (e *Engine) losePastDeadlineIn(c *cohort, now int64) {
	for i := len(c.leases) - 1; i >= 0; i-- {
		if l := c.leases[i]; l.deadline.Load() <= now {
			e.loseAtDeadline(l)
		}
	}
	if c.stage != unused { // it was discarded with its last lease, unless it is in flight: other leases may join it
		e.findNearest(c)
	}
}

// loseAtDeadline declares lost a lease whose deadline is reached.
func (e *Engine) loseAtDeadline(l *Lease) {
	e.markLostAtDeadline(l)
	e.callbacks.losses = append(e.callbacks.losses, l)
}

// markLostAtDeadline is loseAtDeadline without the call of Holder.Lost, which its caller makes.
func (e *Engine) markLostAtDeadline(l *Lease) {
	cause := telemetry.LossExpired
	if l.cohort != nil {
		cause = l.cohort.blame(l)
	}
	e.lose(l, Loss{Cause: cause})
}

// blame returns why a lease of the cohort was not renewed in time. It was the server (unreachable) if an attempt has
// failed or is in flight. It was also the server if the scheduler noticed in time that the call was due: then the call
// waited for other calls that didn't return. Otherwise it was the scheduler (stalled), which noticed too late, or not
// at all.
func (c *cohort) blame(l *Lease) telemetry.LossCause {
	tried := l.tries > 0 || c.tries > 0 || c.stage == inFlight
	inTime := c.noticed != 0 && c.noticed-c.due <= c.group.timeout
	if tried || inTime {
		return telemetry.LossUnreachable
	}
	return telemetry.LossStalled
}

func (e *Engine) lose(l *Lease, how Loss) {
	how.Err = l.err
	l.lost = &loss{Loss: how}
	e.forget(l, lost)
}

// forget removes the lease from the engine.
func (e *Engine) forget(l *Lease, s status) {
	l.status.Store(s)
	if l.cohort != nil {
		e.leave(l)
	}
	e.unrenewed.remove(l)
	e.alarms.remove(l)
	e.leases--
}

// sweep removes groups and nodes without leases: their keys come from outside, and may never be used again.
func (e *Engine) sweep() {
	for key, g := range e.groups {
		if g.cohorts == 0 {
			g.node.groups--
			delete(e.groups, key)
		}
	}
	for name, node := range e.nodes {
		if node.groups == 0 && node.calls == 0 {
			e.agenda.remove(node)
			delete(e.nodes, name)
		}
	}
}

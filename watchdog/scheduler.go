package watchdog

import (
	"math"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// tick is how often the scheduler looks even when nothing is due, while there are leases, or were since it last looked: the sign that it
// lives.
const tick = time.Second

// run is the scheduler: the one goroutine that watches the clock. It calls no foreign code.
func (e *Engine) run() {
	defer e.wg.Done()
	timer := time.NewTimer(tick) // set anew before each wait
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
		default: // there are no leases: only a kick is waited for
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

// wake has the scheduler look at that time at the latest. It is woken only when it would have slept longer.
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

// pass does all that is due: deadlines first, so that no call is made for a lease that has run out.
func (e *Engine) pass(now int64) {
	e.wakeAt = math.MinInt64 // what comes up meanwhile is seen below
	if !e.expireDue(now) {
		e.notify()
		e.wakeAt = now
		return
	}
	for e.alarms.minAt() <= now {
		l := e.alarms.entries[0].item
		e.alarms.remove(l)
		if !l.alarmDue {
			l.alarmDue = true
			e.callbacks.alarms = append(e.callbacks.alarms, l)
		}
	}
	for e.agenda.minAt() <= now {
		e.agenda.entries[0].item.pass(now)
	}
	// A client that takes locks one at a time has none in between; without this, each acquire would wake the scheduler.
	resting := e.leases == 0 && !e.began
	e.began = false
	if resting || now-e.lastSweep >= int64(tick) {
		e.sweep()
		e.lastSweep = now
	}
	e.notify()
	e.lastPass = now
	e.wakeAt = min(e.watches.minAt(), e.unrenewed.minAt(), e.alarms.minAt(), e.agenda.minAt())
	if !resting {
		e.wakeAt = min(e.wakeAt, now+int64(tick))
	}
}

// expireDue declares lost what has run out. After some thousands it stops and returns false, so that mu is not held
// for long when everything is lost at once.
func (e *Engine) expireDue(now int64) bool {
	const stride = 4096
	for done := 0; done < stride; {
		switch {
		case e.watches.minAt() <= now:
			c := e.watches.entries[0].item
			done += len(c.leases)
			e.expireIn(c, now)
		case e.unrenewed.minAt() <= now:
			done++
			e.expire(e.unrenewed.entries[0].item)
		default:
			return true
		}
	}
	return false
}

// expireIn declares lost what has run out in a cohort. There may be nothing: see cohort.nearest.
func (e *Engine) expireIn(c *cohort, now int64) {
	for i := len(c.leases) - 1; i >= 0; i-- {
		if l := c.leases[i]; l.deadline.Load() <= now {
			e.expire(l)
		}
	}
	if c.stage != unused { // an empty one is still here while its call is in flight, and others may join it
		e.findNearest(c)
	}
}

// expire declares lost a lease whose deadline is reached.
func (e *Engine) expire(l *Lease) {
	e.loseAtDeadline(l)
	e.callbacks.losses = append(e.callbacks.losses, l)
}

// loseAtDeadline is expire for a caller that tells the holder itself.
func (e *Engine) loseAtDeadline(l *Lease) {
	cause := telemetry.LossExpired
	if l.cohort != nil {
		cause = l.cohort.blame(l)
	}
	e.lose(l, Loss{Cause: cause})
}

// blame says why a lease of the cohort was not renewed in time. If no attempt was made since it was due, and the
// scheduler saw that too late to make one, that is the scheduler's fault. If it saw it in time, the attempt waited
// for calls to return that did not.
func (c *cohort) blame(l *Lease) telemetry.LossCause {
	tried := l.tries > 0 || c.tries > 0 || c.stage == inFlight
	inTime := c.noticed != 0 && c.noticed-c.due <= c.group.timeout
	if tried || inTime {
		return telemetry.LossUnreachable
	}
	return telemetry.LossStalled
}

func (e *Engine) lose(l *Lease, loss Loss) {
	loss.Err = l.err
	l.lost = &loss
	e.forget(l, lost)
}

// forget takes the lease out of the engine.
func (e *Engine) forget(l *Lease, s status) {
	l.status.Store(s)
	if l.cohort != nil {
		e.leave(l)
	}
	e.unrenewed.remove(l)
	e.alarms.remove(l)
	e.leases--
}

// sweep forgets groups and nodes without leases: their keys come from outside and may never come again.
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

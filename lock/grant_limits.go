package lock

import (
	"fmt"
	"time"
)

// Alarm implements watchdog.Holder. It carries out WithHoldWarning, WithMaxHold and WithHeartbeat.
func (g *grant) Alarm(now time.Time) (next time.Time, tell func()) {
	held, cfg := now.Sub(g.hold.Since()), g.lock.cfg
	g.mu.Lock()
	warn := cfg.holdWarning > 0 && held >= cfg.holdWarning && !g.extraCopy().warned
	if warn {
		g.ensureExtra().warned = true
	}
	beat, limited := g.extraCopy().beat, !g.extraCopy().unlimited
	var report func()
	if d := cfg.maxHold; d > 0 && limited && held >= d {
		report = g.cancel(&CanceledError{g.lock.name, ReasonMaxHold, fmt.Errorf("held longer than WithMaxHold(%v) allows", d)})
	}
	if d := cfg.heartbeat; d > 0 && limited && held-beat >= d && report == nil {
		report = g.cancel(&CanceledError{g.lock.name, ReasonHeartbeat, fmt.Errorf("no Heartbeat for WithHeartbeat(%v)", d)})
	}
	g.mu.Unlock()
	if warn {
		canceled := report
		report = func() {
			if g.whyEnded() == nil {
				g.warn(held)
			}
			if canceled != nil {
				canceled()
			}
		}
	}
	return g.nextAlarm(held), report
}

// warn logs the warning of WithHoldWarning. If the grant's first handle is a member of an acquired composite, the
// composite logs the warning instead, once for all members.
func (g *grant) warn(held time.Duration) {
	g.mu.Lock()
	comp := g.first.composite
	g.mu.Unlock()
	if comp == nil || !comp.warn(held) {
		g.hold.Warn(held)
	}
}

// nextAlarm returns when the next warning or limit of the hold is due, zero if there is none.
func (g *grant) nextAlarm(held time.Duration) time.Time {
	cfg := g.lock.cfg
	var next time.Duration
	due := func(d time.Duration) {
		if d > held && (next == 0 || d < next) {
			next = d
		}
	}
	due(cfg.holdWarning)
	g.mu.Lock()
	if extra := g.extraCopy(); g.state == grantHeld && !extra.unlimited {
		due(cfg.maxHold)
		if cfg.heartbeat > 0 {
			due(extra.beat + cfg.heartbeat)
		}
	}
	g.mu.Unlock()
	if next == 0 {
		return time.Time{}
	}
	return g.hold.Since().Add(next)
}

// dropLimits switches off WithMaxHold and WithHeartbeat: the lock of the Multi that is taken last enforces them.
func (g *grant) dropLimits() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ensureExtra().unlimited = true
}

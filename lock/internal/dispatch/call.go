package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// Call is one run of a script. It comes from Dispatcher.NewCall and is passed to Dispatcher.Do once.
type Call struct {
	script.Request
	WriteTimeout   time.Duration // not-after = Sent + WriteTimeout, if the script takes one: it writes nothing later
	Owner          Owner         // nil: if the caller leaves, there is nothing to clean up
	Replicas       int           // how many must have the script's writes ...
	ReplicaTimeout time.Duration // ... within this time

	// Set by Do.
	Sent           time.Time // just before sending; zero: it wasn't sent
	LateWriteUntil time.Time // without a reply: the script may write until then, or later if Clock knew nothing
	Reply          any
	Acked          int // replicas that have the script's writes
	Err            error

	node        *Node // set by Do
	purpose     telemetry.Purpose
	unbatchable bool // it is the only call of its batch
	ctx         context.Context
	state       atomic.Int32
	done        chan struct{}
	over        <-chan struct{} // closed when nobody needs the call any more; nil: always needed
	timer       *time.Timer
}

// Owner cleans up after the calls that are sent for it.
type Owner interface {
	// Abandoned is called when a call has ended whose caller left before the reply. It must not keep the call.
	Abandoned(c *Call)
}

// The states of a Call.
const (
	waiting   = iota
	answered  // the reply came first
	abandoned // the caller left first
)

// NewCall returns a call without a script. Recycle takes it back, unless its caller left.
func (d *Dispatcher) NewCall(purpose telemetry.Purpose) *Call {
	c := d.calls.Get().(*Call)
	c.purpose = purpose
	c.WriteTimeout, c.Owner, c.Replicas = 0, nil, 0
	c.Sent, c.LateWriteUntil, c.Reply, c.Acked, c.Err = time.Time{}, time.Time{}, nil, 0, nil
	c.state.Store(waiting)
	return c
}

// Recycle takes back a call for which Do returned nil.
func (d *Dispatcher) Recycle(c *Call) {
	c.Reset()
	c.ctx = nil
	d.calls.Put(c)
}

// MayHaveRun reports whether the script of a call that failed may have run, or may still run. If only WAIT failed, the
// script has run: then there is a reply.
func (c *Call) MayHaveRun() bool { return c.Reply != nil || redisfail.Classify(c.Err).Unclear }

// Learn learns the server's time from a reply that was parsed with err. now is 0 if the reply doesn't contain it. For a
// late call it returns ErrLate.
func (c *Call) Learn(now int64, late bool, err error) error {
	if err != nil {
		return err
	}
	if now != 0 {
		c.node.Clock.Learn(now, c.Sent, late)
	}
	if late {
		return redisfail.ErrLate
	}
	return nil
}

// stamp sets the time of sending, and the not-after, which is never later than the deadline of the caller's ctx.
func (c *Call) stamp(now time.Time) {
	c.Sent = now
	if c.Expires() {
		until := now.Add(c.WriteTimeout)
		if end, limited := c.ctx.Deadline(); limited && end.Before(until) {
			until = end
		}
		c.SetNotAfter(c.node.Clock.At(until))
		c.LateWriteUntil = until.Add(c.node.Clock.ahead()) // the server's clock may be behind At by that
	}
}

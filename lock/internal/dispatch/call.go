package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// Call is one run of a script. It comes from Dispatcher.Call, and goes to Dispatcher.Do once.
type Call struct {
	script.Request
	WriteTimeout   time.Duration // if the script takes a not-after, the server time after which it refuses to write: how long after it is sent
	Owner          Owner         // nil: if the caller leaves, there is nothing to clean up
	Replicas       int           // how many must have the script's writes ...
	ReplicaTimeout time.Duration // ... within this time

	// What Do leaves.
	Sent           time.Time // before it left; zero: it wasn't sent
	LateWriteUntil time.Time // without a reply: until then the script may still write. Zero: it takes no not-after
	Reply          any
	Acked          int // replicas that have the script's writes
	Err            error

	node        *Node // since Do
	purpose     telemetry.Purpose
	unbatchable bool // it is sent in a batch of its own
	ctx         context.Context
	state       atomic.Int32 // waiting, then what came first
	done        chan struct{}
	over        <-chan struct{} // closed when nobody needs the call any more; nil: somebody does
	timer       *time.Timer
}

// Owner is on whose behalf a call is sent, and cleans up after it.
type Owner interface {
	// Abandoned is called with a call whose caller left before the reply, when that has arrived or failed. It must not keep the call.
	Abandoned(c *Call)
}

// The states of a Call.
const (
	waiting = iota
	answered
	abandoned
)

// Call returns a call with no script yet. Recycle takes it back, unless its caller left.
func (d *Dispatcher) Call(purpose telemetry.Purpose) *Call {
	c := d.calls.Get().(*Call)
	c.purpose = purpose
	c.WriteTimeout, c.Owner, c.Replicas = 0, nil, 0
	c.Sent, c.LateWriteUntil, c.Reply, c.Acked, c.Err = time.Time{}, time.Time{}, nil, 0, nil
	c.state.Store(waiting)
	return c
}

// Recycle takes back a call for which Do has reported true.
func (d *Dispatcher) Recycle(c *Call) {
	c.Reset()
	c.ctx = nil
	d.calls.Put(c)
}

// Learn takes the server's time from a reply, 0 = not in it, that was read with err. That the call was late is an error.
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

// stamp notes that the call is sent now, and counts its not-after from now. That is the deadline of its caller's ctx at the latest.
func (c *Call) stamp(now time.Time) {
	c.Sent = now
	if c.Expires() {
		until := now.Add(c.WriteTimeout)
		if end, limited := c.ctx.Deadline(); limited && end.Before(until) {
			until = end
		}
		c.SetNotAfter(c.node.Clock.At(until))
		c.LateWriteUntil = until.Add(c.node.Clock.ahead()) // the server may count from so much earlier
	}
}

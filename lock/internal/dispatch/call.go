package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// Call is a script to run. It comes from Dispatcher.NewCall, and Dispatcher.Do or DoAlone takes it back.
type Call struct {
	script.Request
	MayWriteFor    time.Duration // not-after = Reply.Sent + MayWriteFor or earlier; see script.Request.SetNotAfter
	LateHandler    LateHandler   // nil: if the caller leaves, only Reply.MayHaveRun says that the script may still run
	Replicas       int           // wait until so many replicas have the script's writes; 0: don't wait
	ReplicaTimeout time.Duration // wait no longer than this

	node        *Node // set by Do and DoAlone
	purpose     telemetry.Purpose
	unbatchable bool // it is the only call of its batch
	ctx         context.Context
	state       atomic.Int32
	done        chan struct{}
	over        <-chan struct{} // closed when nobody needs the call any more; nil: always needed
	timer       *time.Timer

	// The outcome. While a worker has the call, only the worker uses these fields.
	value          any
	err            error
	acked          int
	sent           time.Time
	lateWriteUntil time.Time
	slack          atomic.Int64 // of the node's Clock at sending, a Duration; a caller that leaves may read it
}

// Reply is what is known of a call after it has ended or its caller has left.
type Reply struct {
	Value any       // what the script returned
	Sent  time.Time // just before sending; zero: it wasn't sent, or the caller left before the reply
	Acked int       // replicas that have the script's writes

	// MayHaveRun: the call failed, but its script may have run, or may still run and write until LateWriteUntil (or
	// later if the node's Clock knew nothing). It is false if Do's caller left early and the LateHandler is called
	// instead.
	MayHaveRun     bool
	LateWriteUntil time.Time

	node *Node
}

// LateHandler cleans up after calls whose callers left before the reply.
type LateHandler interface {
	// HandleLate is called when such a call has ended, if it was sent.
	HandleLate(reply Reply, err error)
}

// The states of a Call.
const (
	waiting    = iota
	answered   // the reply came first
	callerLeft // the caller left first
)

// NewCall returns a call without a script.
func (d *Dispatcher) NewCall(purpose telemetry.Purpose) *Call {
	c := d.calls.Get().(*Call)
	c.purpose = purpose
	c.MayWriteFor, c.LateHandler, c.Replicas = 0, nil, 0
	c.sent, c.lateWriteUntil, c.value, c.acked, c.err = time.Time{}, time.Time{}, nil, 0, nil
	c.state.Store(waiting)
	c.slack.Store(0)
	return c
}

// recycle takes back a call that no worker has any more.
func (d *Dispatcher) recycle(c *Call) {
	c.Reset()
	c.ctx, c.value, c.err = nil, nil, nil
	d.calls.Put(c)
}

// outcome returns what came of a call that has ended.
func (c *Call) outcome() (Reply, error) {
	return Reply{
		Value: c.value, Sent: c.sent, Acked: c.acked, LateWriteUntil: c.lateWriteUntil, node: c.node,
		// If only WAIT failed, the script has run: then there is a value.
		MayHaveRun: c.err != nil && (c.value != nil || redisfail.Classify(c.err).Unclear),
	}, c.err
}

// handleLate calls the LateHandler of a call whose caller has left.
func (c *Call) handleLate() {
	if c.LateHandler != nil {
		c.LateHandler.HandleLate(c.outcome())
	}
}

// Learn learns the server's time, now in µs, from a reply; 0: the reply doesn't contain it. err is the error of parsing
// the reply, and Learn returns it. For a late call it returns ErrLate.
func (r *Reply) Learn(now int64, late bool, err error) error {
	if err != nil {
		return err
	}
	if now != 0 {
		r.node.Clock.Learn(now, r.Sent, late)
	}
	if late {
		return redisfail.ErrLate
	}
	return nil
}

// stamp sets the time of sending, and the not-after if the script takes one: MayWriteFor later, or the deadline of the
// caller's ctx if that is sooner.
func (c *Call) stamp(now time.Time) {
	c.sent = now
	if c.HasNotAfter() {
		until := now.Add(c.MayWriteFor)
		if end, limited := c.ctx.Deadline(); limited && end.Before(until) {
			until = end
		}
		notAfter, slack := c.node.Clock.At(until)
		c.SetNotAfter(notAfter)
		c.slack.Store(int64(slack))
		c.lateWriteUntil = until.Add(slack)
	}
}

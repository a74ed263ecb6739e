// Package story makes a telemetry.Recorder record all that can happen to a lock, for tests of its output.
package story

import (
	"context"
	"errors"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// TTL is the lease of all locks here.
const TTL = 30 * time.Second

var errStory = errors.New("boom")

// Renewed returns a successful renewal, after a third of the lease.
func Renewed(start time.Time) *telemetry.RenewalEvent {
	return &telemetry.RenewalEvent{
		Start: start, End: start.Add(3 * time.Millisecond), Outcome: telemetry.RenewalRenewed, Attempt: 1,
		Remaining: 20 * time.Second, Elapsed: 10 * time.Second, BatchSize: 1, Node: "127.0.0.1:6379",
	}
}

// Each returns all values of a label of a metric.
func Each[V ~string](m telemetry.Metric, label int) []V {
	var all []V
	for _, v := range m.Labels[label].Values {
		all = append(all, V(v))
	}
	return all
}

// Everything makes a recorder emit each of its spans, metrics, label values and log records at least once, for one
// lock, which has a member. It returns a hold that hasn't ended, so that gauges have a value; the caller must end it.
// Some log records with counts are only written when the recorder is closed.
func Everything(ctx context.Context, r *telemetry.Recorder, l *telemetry.Lock) *telemetry.Hold {
	const holder = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	acquire := func() *telemetry.Hold {
		_, a := r.StartAcquire(ctx, l, TTL)
		a.Attempt()
		a.BlockedBy("other:1", holder)
		a.WaitStart()
		for _, s := range Each[telemetry.WakeupSource](telemetry.MetricWakeups, 1) {
			a.Wakeup(s)
		}
		a.Takeover(telemetry.TakeoverExpired)
		a.Takeover(telemetry.TakeoverMessageMissed)
		h := new(telemetry.Hold)
		a.Grant(h, "app:1", 7)
		return h
	}
	for _, o := range Each[telemetry.Outcome](telemetry.MetricAcquisitions, 1) {
		_, a := r.StartAcquire(ctx, l, TTL)
		a.Error(telemetry.ErrorTimeout)
		a.Fail(o, errStory)
	}
	_, deadlocked := r.StartAcquire(ctx, l, TTL)
	deadlocked.WaitStart()
	for range 11 {
		deadlocked.Deadlock("orders:42 held by stock:1, which waits for stock:7 held by orders:1", false)
	}
	deadlocked.Fail(telemetry.AcquireTimeout, errStory)
	for _, end := range []telemetry.HoldEnd{
		telemetry.EndReleased, telemetry.EndLost, telemetry.EndCanceled, telemetry.EndClosed,
	} {
		h := acquire()
		_, a := r.StartAcquire(ctx, l, TTL)
		a.Reenter(h)
		now := time.Now()
		burst := r.NewBurst()
		_, batch := r.StartBatch(context.Background(), "node:1", 4, time.Millisecond, true)
		for _, renewed := range []int{4, 1, 0} {
			r.AgentRequest(ctx, renewed, 4)
		}
		batch.ByAgent(1)
		batch.End(1, 1, 1, 1, telemetry.ErrorTimeout, nil)
		for range 11 {
			for _, o := range []telemetry.Outcome{
				telemetry.RenewalError, telemetry.RenewalRenewed, telemetry.RenewalMissing, telemetry.RenewalTaken,
			} {
				h.Renewal(&telemetry.RenewalEvent{
					Start: now, End: now, Outcome: o, Err: errStory, ErrType: telemetry.ErrorNetwork, Attempt: 1,
					Elapsed: TTL, Node: "node:1", Batch: &batch, Burst: burst,
				})
			}
		}
		for range 400 {
			h.Renewal(Renewed(now))
		}
		for range 11 {
			h.Lost(telemetry.LossMissing, errStory, burst)
		}
		burst.Flush()
		for _, c := range Each[telemetry.LossCause](telemetry.MetricLosses, 1) {
			h.Lost(c, errStory, nil)
		}
		for _, c := range Each[telemetry.CancelReason](telemetry.MetricCancellations, 1) {
			h.Canceled(c, errStory)
		}
		for range 11 {
			h.Canceled(telemetry.CancelMaxHold, errStory)
			h.Canceled(telemetry.CancelContext, errStory)
			h.Warn(time.Hour)
		}
		for _, o := range Each[telemetry.Outcome](telemetry.MetricReleases, 1) {
			_, rel := r.StartRelease(ctx, h)
			rel.Error(telemetry.ErrorTimeout)
			rel.End(o, true, errStory)
		}
		h.End(end)
	}
	memberOf(ctx, r, l)
	_, batch := r.StartBatch(context.Background(), "node:1", 1, 0, false)
	batch.End(0, 0, 0, 1, telemetry.ErrorTimeout, errStory)
	_, batch = r.StartBatch(context.Background(), "node:1", 1, 0, true)
	batch.End(1, 0, 0, 0, "", nil)
	force(ctx, r, l)
	for range 11 {
		r.Crashed(l, "app:1", holder, 4711, time.Now())
	}
	for _, op := range Each[telemetry.Operation](telemetry.MetricErrors, 0) {
		for _, t := range Each[telemetry.ErrorType](telemetry.MetricErrors, 1) {
			r.Error(ctx, op, t)
		}
	}
	for _, p := range Each[telemetry.Purpose](telemetry.MetricCommands, 0) {
		r.Command(p)
	}
	r.PubSubReconnect()
	r.WatchdogLeases(1)
	return acquire()
}

// memberOf records what is recorded differently for a member of the lock.
func memberOf(ctx context.Context, r *telemetry.Recorder, composite *telemetry.Lock) {
	l := composite.Member(func() string { return "node:1" })
	ctx, a := r.StartAcquire(ctx, &l, TTL)
	h := new(telemetry.Hold)
	a.Deadlock("orders:42 held by stock:1, which waits for stock:7 held by orders:1", true)
	a.Grant(h, "app:1", 7)
	burst := r.NewBurst()
	for range 11 {
		h.Lost(telemetry.LossMissing, errStory, burst)
	}
	burst.Flush()
	for _, c := range Each[telemetry.LossCause](telemetry.MetricLosses, 1) {
		h.Lost(c, errStory, nil)
	}
	h.Canceled(telemetry.CancelContext, errStory)
	_, rel := r.StartRelease(ctx, h)
	rel.End(telemetry.ReleaseError, false, errStory)
	h.End(telemetry.EndLost)
	force(ctx, r, &l)
}

func force(ctx context.Context, r *telemetry.Recorder, l *telemetry.Lock) {
	for _, err := range []error{nil, errStory} {
		_, f := r.StartForce(ctx, l)
		f.End(err == nil, []string{"app:1"}, "operator", "main.main (main.go:1)", telemetry.ErrorTimeout, err)
	}
}

// Busy returns a State with a value for every gauge that depends on it.
func Busy() telemetry.State {
	return telemetry.State{Ticking: true, TickAge: time.Second, PubSubWanted: true, PubSubConnected: true}
}

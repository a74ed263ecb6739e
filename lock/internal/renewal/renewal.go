// Package renewal renews a client's leases in Redis. The watchdog decides when and in which batches; this package makes
// the calls, reads Redis's answer for each lease, and reports it to telemetry. It knows the holder of a lease by the
// interface Holder.
package renewal

import (
	"context"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/internal/agentlink"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// Holder is what a Renewer needs of the holder of a lease. The watchdog.Holder of each watched lease must implement it.
type Holder interface {
	// Target returns what is renewed in Redis.
	Target() Target
	// Telemetry returns the Hold to which the renewals of the lease are reported.
	Telemetry() *telemetry.Hold
	// NodeChanged is called when the lease turns out to live on another node than its batch's.
	NodeChanged()
}

// Target is a lease as Redis stores it.
type Target struct {
	Key       string // of the lock
	Owner     string
	Holding   script.Holding // how the lock stores its owners
	Expiry    time.Duration  // of the key, as a renewal sets it: the lease plus the takeover delay
	ExpiryArg any            // the same in milliseconds, boxed
}

// AgentLease returns the same for the agent of the machine.
func (t *Target) AgentLease() agentlink.Lease {
	return agentlink.Lease{
		Key: t.Key, Owner: t.Owner, Holding: t.Holding, Milliseconds: t.Expiry.Milliseconds(),
	}
}

// Leases are all leases that the client holds.
type Leases interface {
	Count() int
	All() []*watchdog.Lease
}

// Config says how a Renewer reaches Redis, and which leases it renews.
type Config struct {
	Caller
	Agent     *agentlink.Link // nil: there is no agent
	Leases    Leases
	BatchSize int // see watchdog.Config
	Panicked  func(v any, stack []byte)
}

// Renewer is a watchdog that renews in Redis, over the connections reserved for renewals if these can be opened. A
// batch is one call if the server allows that.
type Renewer struct {
	*watchdog.Engine
	cfg      Config
	agent    agent
	losses   *telemetry.Burst // for leases whose deadline has passed
	topology *topologyWatch
}

// New returns a Renewer that does nothing before the first Watch.
func New(cfg Config) *Renewer {
	r := &Renewer{cfg: cfg, losses: cfg.Recorder.NewBurst()}
	r.agent.link, r.agent.nodes = cfg.Agent, make(map[string]*agentNode)
	r.Engine = watchdog.New(watchdog.Config{
		BatchSize: cfg.BatchSize, Panicked: cfg.Panicked,
		Renew: r.renew,
		Done:  func(b *watchdog.Batch) { r.Burst(b).Flush() },
	})
	r.topology = newTopologyWatch(r)
	return r
}

// Watch watches a lease from now on: see watchdog.Engine.Watch. Config.Leases must already contain it.
func (r *Renewer) Watch(l *watchdog.Lease, s watchdog.Spec) {
	r.Engine.Watch(l, s)
	r.topology.start()
}

// Close stops renewing: see watchdog.Engine.Close.
func (r *Renewer) Close() {
	r.Engine.Close()
	r.topology.close()
	r.agent.link.Close()
}

// batchRecord is what telemetry needs to know about one batch.
type batchRecord struct {
	span  telemetry.RenewBatch
	burst *telemetry.Burst
	end   time.Time
}

// renew is watchdog.Config.Renew.
func (r *Renewer) renew(ctx context.Context, b *watchdog.Batch) {
	record := &batchRecord{burst: r.cfg.Recorder.NewBurst()}
	b.Attachment = record
	shown := slices.ContainsFunc(b.Leases, func(l *watchdog.Lease) bool {
		return holderOf(l).Telemetry().ShowsRenewal()
	})
	ctx, record.span = r.cfg.Recorder.StartBatch(ctx, b.Node, len(b.Leases), b.Lag(), shown)
	byAgent, err := r.renewBatch(ctx, b)
	record.end = time.Now()

	for i := range b.Results {
		if b.Results[i].Outcome == watchdog.Moved && b.Results[i].Node != b.Node {
			holderOf(b.Leases[i]).NodeChanged()
		}
	}
	count, firstFailure := Count(b.Results)
	record.span.ByAgent(byAgent)
	record.span.End(
		count[watchdog.Renewed], count[watchdog.Missing], count[watchdog.Taken], count[watchdog.Failed],
		redisfail.Classify(firstFailure).Kind, err,
	)
}

// Count counts results by outcome, and returns the error of the first failure.
func Count(results []watchdog.Result) (count [watchdog.Moved + 1]int, firstFailure error) {
	for i := range results {
		count[results[i].Outcome]++
		if firstFailure == nil && results[i].Outcome == watchdog.Failed {
			firstFailure = results[i].Err
		}
	}
	return count, firstFailure
}

// Report reports the renewal of one lease to telemetry.
func (r *Renewer) Report(h Holder, rn watchdog.Renewal) {
	ev := telemetry.RenewalEvent{
		Start: rn.Batch.Sent, End: time.Now(), Outcome: outcomes[rn.Result.Outcome], Err: rn.Result.Err,
		Attempt: rn.Attempt, Remaining: rn.Remaining, Lag: rn.Batch.Lag(), Elapsed: rn.Elapsed,
		BatchSize: len(rn.Batch.Leases), Node: rn.Batch.Node,
	}
	if rn.Result.Err != nil {
		ev.ErrType = redisfail.Classify(rn.Result.Err).Kind
	}
	if record, ok := rn.Batch.Attachment.(*batchRecord); ok {
		ev.End, ev.Batch, ev.Burst = record.end, &record.span, record.burst
	}
	h.Telemetry().Renewal(&ev)
}

// outcomes translates to telemetry. Moved isn't reported: the watchdog repeats such a renewal on the new node.
var outcomes = [...]telemetry.Outcome{
	watchdog.Failed:  telemetry.RenewalError,
	watchdog.Renewed: telemetry.RenewalRenewed,
	watchdog.Missing: telemetry.RenewalMissing,
	watchdog.Taken:   telemetry.RenewalTaken,
}

// Burst returns the limiter for the log records of losses: that of batch b, for the losses that b found. With b nil, it
// returns the one for leases whose deadline has passed.
func (r *Renewer) Burst(b *watchdog.Batch) *telemetry.Burst {
	if b != nil {
		if record, ok := b.Attachment.(*batchRecord); ok {
			return record.burst
		}
	}
	return r.losses
}

func holderOf(l *watchdog.Lease) Holder { return l.Holder().(Holder) }

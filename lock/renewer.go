package lock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// renewer is what the watchdog calls: it turns a batch into one script call over the connections reserved for
// renewals, and reports what came of it.
type renewer struct {
	dispatcher *dispatch.Dispatcher
	backend    *backend.Redis
	rec        *telemetry.Recorder
	losses     *telemetry.Burst // of leases whose deadline passed
}

// round is what telemetry needs of one batch.
type round struct {
	span  telemetry.RenewBatch
	burst *telemetry.Burst
	end   time.Time
}

func newRenewer(d *dispatch.Dispatcher, b *backend.Redis, rec *telemetry.Recorder) *renewer {
	return &renewer{dispatcher: d, backend: b, rec: rec, losses: rec.NewBurst()}
}

// renew is watchdog.Config.Renew.
func (r *renewer) renew(ctx context.Context, b *watchdog.Batch) {
	rd := &round{burst: r.rec.NewBurst()}
	b.Attachment = rd
	shown := slices.ContainsFunc(b.Leases, func(l *watchdog.Lease) bool { return grantOf(l).hold.ShowsRenewal() })
	ctx, rd.span = r.rec.StartBatch(ctx, b.Partition, len(b.Leases), max(b.Sent.Sub(b.Planned), 0), shown)
	err := r.call(ctx, b)
	rd.end = time.Now()

	var count [watchdog.Moved + 1]int
	var why error
	for i := range b.Results {
		if err != nil && b.Results[i].Outcome != watchdog.Moved {
			b.Results[i] = watchdog.Result{Err: err}
		}
		count[b.Results[i].Outcome]++
		if why == nil && b.Results[i].Outcome == watchdog.Failed {
			why = b.Results[i].Err
		}
	}
	rd.span.End(count[watchdog.Renewed], count[watchdog.Missing], count[watchdog.Taken], count[watchdog.Failed], redisfail.Classify(why).Kind, err)
}

// call renews the batch and fills its results; an error is that of all leases.
func (r *renewer) call(ctx context.Context, b *watchdog.Batch) error {
	all := r.leasesStillHere(b)
	if len(all) == 0 {
		return nil
	}
	defer r.redirectAllMoved(ctx, b)
	if err := r.callAll(ctx, b, all); err != nil {
		r.rec.Error(ctx, telemetry.OpRenew, redisfail.Classify(err).Kind)
		if redisfail.MovedElsewhere(err) {
			r.backend.Moved(ctx)
		}
		return err
	}
	r.callDoubtful(ctx, b, all)
	for i := range b.Results {
		r.countFailure(ctx, b, i)
	}
	return nil
}

// callAll renews leases of the batch, by one call where the server lets it.
func (r *renewer) callAll(ctx context.Context, b *watchdog.Batch, all []int) error {
	node := r.dispatcher.NodeNamed(b.Partition)
	if !node.SingleSlotOnly.Load() && !node.DeclaredOnly.Load() {
		call := r.request(ctx, b, all)
		if len(all) > 1 && r.backend.Traits().UndeclaredKeys {
			// Redirected by the first lock, the whole call would run at a node that its slot is on the way to: there the
			// other locks are missing, as they have yet to come or are another node's.
			call.RouteKey, call.Keys = call.Keys[0], nil
		}
		sent := time.Now()
		reply, err := r.dispatcher.Eval(ctx, telemetry.PurposeRenew, call)
		if err == nil {
			err = r.read(ctx, b, all, reply, sent)
		}
		if !node.LearnKeys(err) && (err != nil || !slices.ContainsFunc(b.Results, func(r watchdog.Result) bool { return node.LearnKeys(r.Err) })) {
			return err
		}
	}
	r.callApart(ctx, b, all)
	return nil
}

// callDoubtful asks again for each lease of a cluster that a call for several didn't renew as the server lacks the key. A node that a slot
// is on the way to lacks keys that it has yet to be sent, and says so only of the keys that a call declares: here, the one. For those that
// have moved on, go-redis follows the redirection.
func (r *renewer) callDoubtful(ctx context.Context, b *watchdog.Batch, all []int) {
	if len(all) == 1 || !r.backend.Traits().UndeclaredKeys && !r.dispatcher.NodeNamed(b.Partition).SingleSlotOnly.Load() {
		return
	}
	var calls []backend.Call
	var which []int
	for _, i := range all {
		res := &b.Results[i]
		if res.Outcome == watchdog.Missing || res.Outcome == watchdog.Taken || res.Err != nil && redisfail.Classify(res.Err).Keys != 0 {
			calls, which = append(calls, r.request(ctx, b, []int{i})), append(which, i)
		}
	}
	if len(calls) == 0 {
		return
	}
	for n, res := range r.dispatcher.EvalEach(ctx, telemetry.PurposeRenew, calls) {
		var results []watchdog.Result
		err := res.Err
		if err == nil { // the time in it may be another node's
			results, _, err = readRenewals(res.Reply, 1)
		}
		if err != nil {
			b.Results[which[n]] = watchdog.Result{Err: err}
		} else {
			b.Results[which[n]] = results[0]
		}
	}
}

// leasesStillHere finds the leases whose locks live where the batch goes, and sends the others on: a server asked for a lock that is another's
// by now would say that it is gone. Leases that are alike come one after the other, as a call costs less then.
func (r *renewer) leasesStillHere(b *watchdog.Batch) []int {
	all := make([]int, 0, len(b.Leases))
	for i := range b.Leases {
		if !r.redirectIfMoved(b, i) {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(i, j int) int {
		a, b := grantOf(b.Leases[i]).lock, grantOf(b.Leases[j]).lock
		return cmp.Or(cmp.Compare(a.kind.holding, b.kind.holding), cmp.Compare(a.cfg.ttl(), b.cfg.ttl()))
	})
	return all
}

// redirectAllMoved drops every answer of a server that a lock doesn't live on any more, and sends the lease on: a primary that was replaced may still take
// itself for one, and what it says means nothing to whoever asks for the lock now. An answer doesn't count either while that isn't known.
func (r *renewer) redirectAllMoved(ctx context.Context, b *watchdog.Batch) {
	known := r.backend.Follow(ctx)
	for i := range b.Leases {
		if !r.redirectIfMoved(b, i) && !known && b.Results[i].Err == nil {
			b.Results[i] = watchdog.Result{Err: backend.ErrNotNamed}
			r.rec.Error(ctx, telemetry.OpRenew, redisfail.Classify(backend.ErrNotNamed).Kind)
		}
	}
}

// redirectIfMoved sends a lease on if its lock lives elsewhere than where the batch goes, and reports whether it does.
func (r *renewer) redirectIfMoved(b *watchdog.Batch, i int) bool {
	lk := grantOf(b.Leases[i]).lock
	at := r.backend.Node(lk.key)
	if at == "" || at == b.Partition {
		return false
	}
	lk.c.watchControl(lk.key) // a forced unlock is told of there
	b.Results[i] = watchdog.Result{Outcome: watchdog.Moved, Partition: at}
	return true
}

// callApart renews leases of the batch by one call for each slot, or for each lease if all keys have to be declared, in one round trip.
func (r *renewer) callApart(ctx context.Context, b *watchdog.Batch, which []int) {
	apart := make(map[int][]int)
	declaredOnly := r.dispatcher.NodeNamed(b.Partition).DeclaredOnly.Load()
	for _, i := range which {
		part := i
		if !declaredOnly {
			part = hashslot.Of(grantOf(b.Leases[i]).lock.key)
		}
		apart[part] = append(apart[part], i)
	}
	var calls []backend.Call
	var parts [][]int
	for _, part := range apart {
		calls, parts = append(calls, r.request(ctx, b, part)), append(parts, part)
	}
	sent := time.Now()
	for i, res := range r.dispatcher.EvalEach(ctx, telemetry.PurposeRenew, calls) {
		err := res.Err
		if err == nil {
			err = r.read(ctx, b, parts[i], res.Reply, sent)
		}
		if err != nil {
			for _, at := range parts[i] {
				b.Results[at] = watchdog.Result{Err: err}
			}
		}
	}
}

// request is the call that renews some leases of the batch.
func (r *renewer) request(ctx context.Context, b *watchdog.Batch, which []int) backend.Call {
	limit, _ := ctx.Deadline()
	node := r.dispatcher.NodeNamed(b.Partition)
	args := script.NewRenewArgs(node.Clock.At(limit), len(which))
	for _, i := range which {
		g := grantOf(b.Leases[i])
		args.Add(g.lock.kind.holding, g.lock.key, g.claim.owner, g.lock.cfg.leaseArg)
	}
	call := args.Call(b.Partition)
	if g := grantOf(b.Leases[which[0]]); node.DeclaredOnly.Load() && g.lock.kind.holding == script.HoldsMark {
		call.Keys = append(call.Keys, script.MarkKey(g.lock.key, g.claim.owner))
	}
	return call
}

// read puts the answer to a request into the results.
func (r *renewer) read(ctx context.Context, b *watchdog.Batch, which []int, reply any, sent time.Time) error {
	results, now, err := readRenewals(reply, len(which))
	if err != nil {
		return err
	}
	late := slices.ContainsFunc(results, func(r watchdog.Result) bool { return errors.Is(r.Err, redisfail.ErrLate) })
	r.dispatcher.NodeNamed(b.Partition).Clock.Learn(now, sent, late)
	for i, at := range which {
		b.Results[at] = results[i]
	}
	return nil
}

// countFailure counts what one lease's renewal failed of, and sends it on if its lock has moved.
func (r *renewer) countFailure(ctx context.Context, b *watchdog.Batch, i int) {
	res := &b.Results[i]
	if res.Err == nil {
		return
	}
	if redisfail.MovedElsewhere(res.Err) {
		r.backend.Moved(ctx)
		if r.redirectIfMoved(b, i) {
			return
		}
	}
	r.rec.Error(ctx, telemetry.OpRenew, redisfail.Classify(res.Err).Kind)
}

func grantOf(l *watchdog.Lease) *grant { return l.Holder().(*grant) }

// readRenewals reads the reply to a request for n leases. It returns Redis's time, too.
func readRenewals(reply any, n int) ([]watchdog.Result, int64, error) {
	r, err := script.ParseRenew(reply, n)
	if err != nil {
		return nil, 0, err
	}
	results := make([]watchdog.Result, n)
	for i := range results {
		switch outcome, err := r.At(i); {
		case redisfail.IsWrongType(err): // somebody keeps something else under its key
			results[i] = watchdog.Result{Outcome: watchdog.Taken, Err: err}
		case err != nil:
			results[i].Err = err
		case outcome == script.RenewLate:
			results[i].Err = redisfail.ErrLate
		default:
			results[i].Outcome = renewed[outcome]
		}
	}
	return results, r.Now, nil
}

var renewed = [...]watchdog.Outcome{
	script.RenewMissing: watchdog.Missing,
	script.Renewed:      watchdog.Renewed,
	script.RenewTaken:   watchdog.Taken,
}

// report tells telemetry what came of one lease's renewal.
func (r *renewer) report(g *grant, rn watchdog.Renewal) {
	ev := telemetry.RenewalEvent{
		Start: rn.Batch.Sent, End: time.Now(), Outcome: renewalOutcomes[rn.Result.Outcome], Err: rn.Result.Err,
		Attempt: rn.Attempt, Remaining: rn.Remaining, Lag: rn.Lag, Elapsed: rn.Elapsed,
		BatchSize: len(rn.Batch.Leases), Node: rn.Batch.Partition,
	}
	if rn.Result.Err != nil {
		ev.ErrType = redisfail.Classify(rn.Result.Err).Kind
	}
	if rd, ok := rn.Batch.Attachment.(*round); ok {
		ev.End, ev.Batch, ev.Burst = rd.end, &rd.span, rd.burst
	}
	g.hold.Renewal(&ev)
}

// renewalOutcomes are telemetry's names. A lease that has Moved isn't reported: see grant.Renewal.
var renewalOutcomes = [...]telemetry.Outcome{
	watchdog.Failed:  telemetry.RenewalError,
	watchdog.Renewed: telemetry.RenewalRenewed,
	watchdog.Missing: telemetry.RenewalMissing,
	watchdog.Taken:   telemetry.RenewalTaken,
}

// burst bounds the logs of losses: those that one batch found, or, with none, those of one look at the deadlines.
func (r *renewer) burst(b *watchdog.Batch) *telemetry.Burst {
	if b != nil {
		if rd, ok := b.Attachment.(*round); ok {
			return rd.burst
		}
	}
	return r.losses
}

// batchDone is watchdog.Config.BatchDone.
func (r *renewer) batchDone(b *watchdog.Batch) { r.burst(b).Flush() }

// lossesDone is watchdog.Config.LossesDone.
func (r *renewer) lossesDone(int) { r.losses.Flush() }

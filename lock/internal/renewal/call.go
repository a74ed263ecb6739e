package renewal

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// A batch is renewed in four steps:
//
//  1. leasesAtNode redirects the leases that now live on another node.
//  2. renewTogether renews the others in one call. If a server wants each call to keep to one slot, or to declare all
//     keys, renewApart makes several calls in one round trip.
//  3. askAgain asks again for each lease that was found missing or taken, or whose key was refused, in a Cluster or
//     where the keys of a call must be of one slot: its slot may be moving.
//  4. confirmNode redirects the leases that have moved away in the meantime. If it isn't known which servers are the
//     right ones, no answer counts.

// renewBatch renews the batch and fills in its results. If it returns an error, that is the result of all leases that
// haven't moved.
func (r *Renewer) renewBatch(ctx context.Context, b *watchdog.Batch) error {
	all := r.leasesAtNode(b)
	if len(all) == 0 {
		return nil
	}
	if err := r.renewTogether(ctx, b, all); err != nil {
		r.cfg.Recorder.Error(ctx, telemetry.OpRenew, redisfail.Classify(err).Kind)
		if redisfail.MayHaveMoved(err) {
			r.cfg.Backend.Moved(ctx)
		}
		r.confirmNode(ctx, b)
		return err
	}
	r.askAgain(ctx, b, all)
	for i := range b.Results {
		r.countFailure(ctx, b, i)
	}
	if !r.confirmNode(ctx, b) {
		r.cfg.Recorder.Error(ctx, telemetry.OpRenew, redisfail.Classify(backend.ErrServersUnknown).Kind)
	}
	return nil
}

// leasesAtNode returns the leases that live on the batch's node, or whose node is unknown. It redirects the others,
// because the batch's node would report them as missing. It puts leases with the same Holding and TTL next to each
// other, which makes the call cheaper.
func (r *Renewer) leasesAtNode(b *watchdog.Batch) []int {
	all := make([]int, 0, len(b.Leases))
	for i := range b.Leases {
		if !r.redirectIfMoved(b, i) {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(i, j int) int {
		a, b := holderOf(b.Leases[i]).Target(), holderOf(b.Leases[j]).Target()
		return cmp.Or(cmp.Compare(a.Holding, b.Holding), cmp.Compare(a.Expiry, b.Expiry))
	})
	return all
}

// redirectIfMoved redirects a lease that lives on another node than the batch's, and reports whether it did so.
func (r *Renewer) redirectIfMoved(b *watchdog.Batch, i int) bool {
	lease := holderOf(b.Leases[i])
	at := r.cfg.Backend.Node(lease.Target().Key)
	if at == "" || at == b.Node {
		return false
	}
	lease.NodeChanged()
	b.Results[i] = watchdog.Result{Outcome: watchdog.Moved, Node: at}
	return true
}

// renewTogether renews leases of the batch, in one call if the server allows it.
func (r *Renewer) renewTogether(ctx context.Context, b *watchdog.Batch, all []int) error {
	node := r.cfg.Dispatcher.NodeNamed(b.Node)
	if !node.SingleSlotOnly.Load() && !node.DeclaredOnly.Load() {
		call := r.request(ctx, b, all)
		if len(all) > 1 && r.cfg.Backend.Traits().KeysAsArguments {
			// With a declared key, the call might be redirected as a whole to a node that lacks the other locks.
			call.RouteKey, call.Keys = call.Keys[0], nil
		}
		sent := time.Now()
		reply, err := r.cfg.Dispatcher.Eval(ctx, telemetry.PurposeRenew, call)
		if err == nil {
			err = r.read(ctx, b, all, reply, sent)
		}
		keyFault := node.NoteKeyFault(err) ||
			err == nil && slices.ContainsFunc(b.Results, func(res watchdog.Result) bool {
				return node.NoteKeyFault(res.Err)
			})
		if !keyFault {
			return err
		}
	}
	r.renewApart(ctx, b, all)
	return nil
}

// renewApart renews leases of the batch in one round trip: in one call per slot, or per lease if keys must be declared.
func (r *Renewer) renewApart(ctx context.Context, b *watchdog.Batch, all []int) {
	groups := make(map[int][]int)
	declaredOnly := r.cfg.Dispatcher.NodeNamed(b.Node).DeclaredOnly.Load()
	for _, i := range all {
		group := i
		if !declaredOnly {
			group = hashslot.Of(holderOf(b.Leases[i]).Target().Key)
		}
		groups[group] = append(groups[group], i)
	}
	var calls []backend.Call
	var leases [][]int
	for _, group := range groups {
		calls, leases = append(calls, r.request(ctx, b, group)), append(leases, group)
	}
	sent := time.Now()
	for n, res := range r.cfg.Dispatcher.EvalEach(ctx, telemetry.PurposeRenew, calls) {
		err := res.Err
		if err == nil {
			err = r.read(ctx, b, leases[n], res.Reply, sent)
		}
		if err != nil {
			for _, i := range leases[n] {
				b.Results[i] = watchdog.Result{Err: err}
			}
		}
	}
}

// askAgain asks again, in one call per lease, for the leases that a call for several leases found missing or taken, or
// whose keys were refused. It does so in a Cluster, and where the keys of a call must be of one slot.
//
// While a slot moves, each of the two nodes lacks keys that the other has. They redirect a call only for keys that it
// declares, and a call for several leases declares its first key at most. For the others, the old node refuses a key
// that has left, and the new node finds nothing in place of one that hasn't arrived. A call for one lease declares its
// key, and its redirection is followed.
func (r *Renewer) askAgain(ctx context.Context, b *watchdog.Batch, all []int) {
	if len(all) == 1 ||
		!r.cfg.Backend.Traits().KeysAsArguments && !r.cfg.Dispatcher.NodeNamed(b.Node).SingleSlotOnly.Load() {
		return
	}
	var calls []backend.Call
	var doubtful []int
	for _, i := range all {
		res := &b.Results[i]
		if res.Outcome == watchdog.Missing || res.Outcome == watchdog.Taken ||
			res.Err != nil && redisfail.Classify(res.Err).Keys != 0 {
			calls, doubtful = append(calls, r.request(ctx, b, []int{i})), append(doubtful, i)
		}
	}
	if len(calls) == 0 {
		return
	}
	for n, res := range r.cfg.Dispatcher.EvalEach(ctx, telemetry.PurposeRenew, calls) {
		var results []watchdog.Result
		err := res.Err
		if err == nil { // the time in the reply may be another node's, so no clock learns it
			results, _, err = parseResults(res.Reply, 1)
		}
		if err != nil {
			results = []watchdog.Result{{Err: err}}
		}
		b.Results[doubtful[n]] = results[0]
	}
}

// confirmNode redirects leases that have moved away in the meantime, whatever the old node said: a primary that was
// replaced may still act as one. If it isn't known which servers are the right ones, no answer counts, and confirmNode
// reports false if there was an answer.
func (r *Renewer) confirmNode(ctx context.Context, b *watchdog.Batch) (valid bool) {
	known := r.cfg.Backend.Follow(ctx)
	valid = true
	for i := range b.Leases {
		res := &b.Results[i]
		answered := res.Err == nil || res.Outcome != watchdog.Failed
		if !r.redirectIfMoved(b, i) && !known && answered {
			*res, valid = watchdog.Result{Err: backend.ErrServersUnknown}, false
		}
	}
	return valid
}

// countFailure reports the failed renewal of a lease to telemetry, or redirects the lease if it has moved.
func (r *Renewer) countFailure(ctx context.Context, b *watchdog.Batch, i int) {
	res := &b.Results[i]
	if res.Err == nil {
		return
	}
	if redisfail.MayHaveMoved(res.Err) {
		r.cfg.Backend.Moved(ctx)
		if r.redirectIfMoved(b, i) {
			return
		}
	}
	r.cfg.Recorder.Error(ctx, telemetry.OpRenew, redisfail.Classify(res.Err).Kind)
}

// request returns the call that renews some leases of the batch.
func (r *Renewer) request(ctx context.Context, b *watchdog.Batch, some []int) backend.Call {
	deadline, _ := ctx.Deadline()
	node := r.cfg.Dispatcher.NodeNamed(b.Node)
	notAfter, _ := node.Clock.At(deadline)
	args := script.NewRenewArgs(notAfter, len(some))
	for _, i := range some {
		e := holderOf(b.Leases[i]).Target()
		args.Add(e.Holding, e.Key, e.Owner, e.ExpiryArg)
	}
	call := args.Call(b.Node)
	if e := holderOf(b.Leases[some[0]]).Target(); node.DeclaredOnly.Load() && e.Holding == script.HoldsMark {
		call.Keys = append(call.Keys, script.MarkKey(e.Key, e.Owner))
	}
	return call
}

// read parses the reply to a request for some leases into their results. sent is when the request was sent.
func (r *Renewer) read(ctx context.Context, b *watchdog.Batch, some []int, reply any, sent time.Time) error {
	results, now, err := parseResults(reply, len(some))
	if err != nil {
		return err
	}
	late := slices.ContainsFunc(results, func(r watchdog.Result) bool { return errors.Is(r.Err, redisfail.ErrLate) })
	r.cfg.Dispatcher.NodeNamed(b.Node).Clock.Learn(now, sent, late)
	for n, i := range some {
		b.Results[i] = results[n]
	}
	return nil
}

// parseResults parses the reply to a request for n leases. It also returns Redis's time.
func parseResults(reply any, n int) ([]watchdog.Result, int64, error) {
	r, err := script.ParseRenew(reply, n)
	if err != nil {
		return nil, 0, err
	}
	results := make([]watchdog.Result, n)
	for i := range results {
		switch outcome, err := r.At(i); {
		case redisfail.IsWrongType(err): // its key holds something else
			results[i] = watchdog.Result{Outcome: watchdog.Taken, Err: err}
		case err != nil:
			results[i].Err = err
		case outcome == script.RenewLate:
			results[i].Err = redisfail.ErrLate
		default:
			results[i].Outcome = scriptOutcomes[outcome]
		}
	}
	return results, r.Now, nil
}

var scriptOutcomes = [...]watchdog.Outcome{
	script.RenewMissing: watchdog.Missing,
	script.Renewed:      watchdog.Renewed,
	script.RenewTaken:   watchdog.Taken,
}

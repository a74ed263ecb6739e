package renewal

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

// Caller renews leases by calls to Redis.
type Caller struct {
	Dispatcher *dispatch.Dispatcher
	Backend    *backend.Redis
	Recorder   *telemetry.Recorder
}

// Attempt is one attempt to renew some leases of one node.
type Attempt struct {
	Node    string
	Targets []Target
	Results []watchdog.Result // one per target
}

// Renew makes an attempt and fills in its results. If it returns an error, that is the result of all leases that
// haven't moved. It takes four steps:
//
//  1. leasesAtNode redirects the leases that now live on another node.
//  2. renewTogether renews the others in one call. If a server wants each call to keep to one slot, or to declare all
//     keys, renewApart makes several calls in one round trip.
//  3. askAgain asks again for each lease that was found missing or taken, or whose key was refused, in a Cluster or
//     where the keys of a call must be of one slot: its slot may be moving.
//  4. confirmNode redirects the leases that have moved away in the meantime. If it isn't known which servers are the
//     right ones, no answer counts.
func (c *Caller) Renew(ctx context.Context, a *Attempt) error {
	all := c.leasesAtNode(a)
	if len(all) == 0 {
		return nil
	}
	if err := c.renewTogether(ctx, a, all); err != nil {
		c.Recorder.Error(ctx, telemetry.OpRenew, redisfail.Classify(err).Kind)
		if redisfail.MayHaveMoved(err) {
			c.Backend.Moved(ctx)
		}
		c.confirmNode(ctx, a)
		for i := range a.Results {
			if res := &a.Results[i]; res.Outcome != watchdog.Moved {
				*res = watchdog.Result{Err: err}
			}
		}
		return err
	}
	c.askAgain(ctx, a, all)
	for i := range a.Results {
		c.countFailure(ctx, a, i)
	}
	if !c.confirmNode(ctx, a) {
		c.Recorder.Error(ctx, telemetry.OpRenew, redisfail.Classify(backend.ErrServersUnknown).Kind)
	}
	return nil
}

// leasesAtNode returns the leases that live on the attempt's node, or whose node is unknown. It redirects the others,
// because the attempt's node would report them as missing. It puts leases with the same Holding and TTL next to each
// other, which makes the call cheaper.
func (c *Caller) leasesAtNode(a *Attempt) []int {
	all := make([]int, 0, len(a.Targets))
	for i := range a.Targets {
		if !c.redirectIfMoved(a, i) {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(i, j int) int {
		x, y := &a.Targets[i], &a.Targets[j]
		return cmp.Or(cmp.Compare(x.Holding, y.Holding), cmp.Compare(x.Expiry, y.Expiry))
	})
	return all
}

// redirectIfMoved redirects a lease that lives on another node than the attempt's, and reports whether it did so.
func (c *Caller) redirectIfMoved(a *Attempt, i int) bool {
	at := c.Backend.Node(a.Targets[i].Key)
	if at == "" || at == a.Node {
		return false
	}
	a.Results[i] = watchdog.Result{Outcome: watchdog.Moved, Node: at}
	return true
}

// renewTogether renews leases of the attempt, in one call if the server allows it.
func (c *Caller) renewTogether(ctx context.Context, a *Attempt, all []int) error {
	node := c.Dispatcher.NodeNamed(a.Node)
	if !node.SingleSlotOnly.Load() && !node.DeclaredOnly.Load() {
		call := c.request(ctx, a, all)
		if len(all) > 1 && c.Backend.Traits().KeysAsArguments {
			// With a declared key, the call might be redirected as a whole to a node that lacks the other locks.
			call.RouteKey, call.Keys = call.Keys[0], nil
		}
		sent := time.Now()
		reply, err := c.Dispatcher.Eval(ctx, telemetry.PurposeRenew, call)
		if err == nil {
			err = c.read(ctx, a, all, reply, sent)
		}
		keyFault := node.NoteKeyFault(err) ||
			err == nil && slices.ContainsFunc(a.Results, func(res watchdog.Result) bool {
				return node.NoteKeyFault(res.Err)
			})
		if !keyFault {
			return err
		}
	}
	c.renewApart(ctx, a, all)
	return nil
}

// renewApart renews leases of the attempt in one round trip: in one call per slot, or per lease if keys must be
// declared.
func (c *Caller) renewApart(ctx context.Context, a *Attempt, all []int) {
	groups := make(map[int][]int)
	declaredOnly := c.Dispatcher.NodeNamed(a.Node).DeclaredOnly.Load()
	for _, i := range all {
		group := i
		if !declaredOnly {
			group = hashslot.Of(a.Targets[i].Key)
		}
		groups[group] = append(groups[group], i)
	}
	var calls []backend.Call
	var leases [][]int
	for _, group := range groups {
		calls, leases = append(calls, c.request(ctx, a, group)), append(leases, group)
	}
	sent := time.Now()
	for n, res := range c.Dispatcher.EvalEach(ctx, telemetry.PurposeRenew, calls) {
		err := res.Err
		if err == nil {
			err = c.read(ctx, a, leases[n], res.Reply, sent)
		}
		if err != nil {
			for _, i := range leases[n] {
				a.Results[i] = watchdog.Result{Err: err}
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
func (c *Caller) askAgain(ctx context.Context, a *Attempt, all []int) {
	if len(all) == 1 ||
		!c.Backend.Traits().KeysAsArguments && !c.Dispatcher.NodeNamed(a.Node).SingleSlotOnly.Load() {
		return
	}
	var calls []backend.Call
	var doubtful []int
	for _, i := range all {
		res := &a.Results[i]
		if res.Outcome == watchdog.Missing || res.Outcome == watchdog.Taken ||
			res.Err != nil && redisfail.Classify(res.Err).Keys != 0 {
			calls, doubtful = append(calls, c.request(ctx, a, []int{i})), append(doubtful, i)
		}
	}
	if len(calls) == 0 {
		return
	}
	for n, res := range c.Dispatcher.EvalEach(ctx, telemetry.PurposeRenew, calls) {
		var results []watchdog.Result
		err := res.Err
		if err == nil { // the time in the reply may be another node's, so no clock learns it
			results, _, err = parseResults(res.Reply, 1)
		}
		if err != nil {
			results = []watchdog.Result{{Err: err}}
		}
		a.Results[doubtful[n]] = results[0]
	}
}

// confirmNode redirects leases that have moved away in the meantime, whatever the old node said: a primary that was
// replaced may still act as one. If it isn't known which servers are the right ones, no answer counts, and confirmNode
// reports false if there was an answer.
func (c *Caller) confirmNode(ctx context.Context, a *Attempt) (valid bool) {
	known := c.Backend.Follow(ctx)
	valid = true
	for i := range a.Targets {
		res := &a.Results[i]
		answered := res.Err == nil || res.Outcome != watchdog.Failed
		if !c.redirectIfMoved(a, i) && !known && answered {
			*res, valid = watchdog.Result{Err: backend.ErrServersUnknown}, false
		}
	}
	return valid
}

// countFailure reports the failed renewal of a lease to telemetry, or redirects the lease if it has moved.
func (c *Caller) countFailure(ctx context.Context, a *Attempt, i int) {
	res := &a.Results[i]
	if res.Err == nil {
		return
	}
	if redisfail.MayHaveMoved(res.Err) {
		c.Backend.Moved(ctx)
		if c.redirectIfMoved(a, i) {
			return
		}
	}
	c.Recorder.Error(ctx, telemetry.OpRenew, redisfail.Classify(res.Err).Kind)
}

// request returns the call that renews some leases of the attempt.
func (c *Caller) request(ctx context.Context, a *Attempt, some []int) backend.Call {
	deadline, _ := ctx.Deadline()
	node := c.Dispatcher.NodeNamed(a.Node)
	notAfter, _ := node.Clock.At(deadline)
	args := script.NewRenewArgs(notAfter, len(some))
	for _, i := range some {
		e := a.Targets[i]
		args.Add(e.Holding, e.Key, e.Owner, e.ExpiryArg)
	}
	call := args.Call(a.Node)
	if e := a.Targets[some[0]]; node.DeclaredOnly.Load() && e.Holding == script.HoldsMark {
		call.Keys = append(call.Keys, script.MarkKey(e.Key, e.Owner))
	}
	return call
}

// read parses the reply to a request for some leases into their results. sent is when the request was sent.
func (c *Caller) read(ctx context.Context, a *Attempt, some []int, reply any, sent time.Time) error {
	results, now, err := parseResults(reply, len(some))
	if err != nil {
		return err
	}
	late := slices.ContainsFunc(results, func(r watchdog.Result) bool { return errors.Is(r.Err, redisfail.ErrLate) })
	c.Dispatcher.NodeNamed(a.Node).Clock.Learn(now, sent, late)
	for n, i := range some {
		a.Results[i] = results[n]
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

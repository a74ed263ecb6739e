package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// newClusterRig holds up the calls to one node of a cluster. It returns the names of n locks there, each in its own slot.
func newClusterRig(t *testing.T, n int) (*batchRig, *redistest.Cluster, *redis.ClusterClient, []string) {
	t.Helper()
	cl := redistest.StartCluster(t, 0)
	rdb := redistest.Open(t, cl.Universal()).(*redis.ClusterClient)
	// On a busy machine, calls are held up for a while: until then no lease may end, and no TryLock give up, as it does after 5 s by itself.
	c := openFor(t, rdb, WithFixedLease(time.Hour), WithWait(time.Hour))
	if traits := c.backend.Traits(); !traits.MultiLockScripts || !traits.KeysAsArguments {
		t.Error("calls that are pending before the layout is loaded aren't those that are combined afterwards")
	}
	r := &batchRig{t: t, c: c, key: "job:0"}
	r.release(tried(t.Context(), c.Mutex("job:0")))
	node := c.backend.Node(r.key)
	for _, s := range cl.Nodes {
		if s.Addr() == node {
			r.node, r.rdb = s, s.Client(t)
		}
	}
	var names []string
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("job:", i); c.backend.Node(name) == node {
			names = append(names, name)
		}
	}
	return r, cl, rdb, names
}

// elsewhere is another node.
func (r *batchRig) elsewhere(cl *redistest.Cluster) *redistest.Server {
	if cl.Nodes[0] == r.node {
		return cl.Nodes[1]
	}
	return cl.Nodes[0]
}

// evals counts the script calls that a node has received.
func evals(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	sent := s.Commands(t)
	return sent["evalsha"] + sent["eval"]
}

// The calls to a node of a cluster share a command although their locks are of many slots, and each has its own outcome.
func TestBatch_Cluster(t *testing.T) {
	t.Parallel()
	r, cl, _, names := newClusterRig(t, 5)
	ctx, other := t.Context(), r.elsewhere(cl)
	for _, s := range cl.Nodes {
		s.Client(t).ScriptLoad(ctx, script.Batch.Source)
	}
	all := r.holdTryLock(ctx, append(names, names[0])...)
	before, beside := evals(t, r.node), evals(t, other)
	r.resume()
	out := r.all(all)
	if sent := evals(t, r.node) - before; sent != 1 {
		t.Errorf("%d commands for %d calls, want 1", sent, len(all))
	}
	for i, name := range names {
		r.wantHeld(name, out[i])
	}
	var held *HeldError
	if err := out[len(names)].err; !errors.As(err, &held) || held.Owner != out[0].l.Owner() {
		t.Errorf("a lock that was acquired in the same batch: %v", err)
	}
	for i, name := range names {
		if r.release(out[i]); !r.gone(name) {
			t.Errorf("%s is still held", name)
		}
	}
	if sent := evals(t, other) - beside; sent != 0 {
		t.Errorf("another node got %d commands", sent)
	}
}

// Where slots migrate, or have migrated, each call of a batch runs where its lock is. No lock is granted on a node that it isn't on because
// another lock of the batch is there: if the batch were redirected for that lock, the node would run it for both.
func TestBatch_MigratingSlots(t *testing.T) {
	t.Parallel()
	r, cl, rdb, names := newClusterRig(t, 5)
	ctx := t.Context()
	leaving, heldLeaving, gone, heldGone, stays := names[0], names[1], names[2], names[3], names[4]
	to := r.elsewhere(cl)
	for _, name := range []string{heldLeaving, heldGone} {
		rdb.HSet(ctx, name, "thread:1", 1)
	}
	for _, name := range []string{leaving, heldLeaving} {
		m := cl.Migrate(t, cl.Slot(t, name), to)
		defer m.Finish(t)
	}
	all := r.holdTryLock(ctx, names...)
	for _, name := range []string{gone, heldGone} {
		cl.Migrate(t, cl.Slot(t, name), to).Finish(t)
	}
	r.resume()
	for i, ch := range all {
		o := <-ch
		var held *HeldError
		switch name := names[i]; name {
		case heldLeaving, heldGone:
			if !errors.As(o.err, &held) || held.Owner != "thread:1" {
				t.Errorf("%s is held: %v, %v", name, o.l, o.err)
			}
		default:
			at := to
			if name == stays {
				at = r.node
			}
			if o.err != nil {
				t.Errorf("%s: %v", name, o.err)
			} else if keys := at.Client(t).ClusterGetKeysInSlot(ctx, cl.Slot(t, name), 10).Val(); len(keys) == 0 {
				t.Errorf("%s isn't where its slot migrates to", name)
			}
			r.release(o)
		}
	}
}

// keyless refuses scripts that declare no key, as a proxy does that routes by them.
type keyless struct {
	redistest.Hook
	refused atomic.Int64
	text    string
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func (h *keyless) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && cmd.Args()[2] == 0 {
			h.refused.Add(1)
			cmd.SetErr(refusal(h.text))
			return refusal(h.text)
		}
		return next(ctx, cmd)
	}
}

// If a batch is refused, each call is sent by itself; from then on always, if the error is that the keys aren't in one slot.
func TestBatch_RefusedByCluster(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"CROSSSLOT Keys in request don't hash to the same slot": 1,
		"ERR wrong number of arguments":                         2,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			r, _, rdb, names := newClusterRig(t, 3)
			hook := &keyless{text: text}
			node, err := rdb.MasterForKey(t.Context(), names[0])
			if err != nil {
				t.Fatal(err)
			}
			node.AddHook(hook)
			for range 2 {
				all := r.holdTryLock(t.Context(), names...)
				r.resume()
				for _, o := range r.all(all) {
					r.release(o)
				}
			}
			if n := hook.refused.Load(); n != want {
				t.Errorf("%d batches were refused, want %d", n, want)
			}
		})
	}
}

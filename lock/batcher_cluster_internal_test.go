package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// newClusterJam is newJam with the calls to one node of a cluster, and the names of n locks there, each in a slot of its own.
func newClusterJam(t *testing.T, n int) (*jam, *redistest.Cluster, *redis.ClusterClient, []string) {
	t.Helper()
	cl := redistest.StartCluster(t, 0)
	rdb := redistest.Open(t, cl.Universal()).(*redis.ClusterClient)
	c := openFor(t, rdb)
	if traits := c.backend.Traits(); !traits.MultiLockScripts || !traits.UndeclaredKeys {
		t.Error("calls that board before the layout is loaded aren't those that are combined afterwards")
	}
	j := &jam{t: t, c: c}
	l, err := c.Mutex("job:0").TryLock(t.Context())
	j.release(outcome{l, err})
	j.n = c.transport.nodeOf("job:0")
	for _, s := range cl.Nodes {
		if s.Addr() == j.n.name {
			j.srv, j.rdb = s, s.Client(t)
		}
	}
	j.quiet()
	var names []string
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("job:", i); c.transport.nodeOf(name) == j.n {
			names = append(names, name)
		}
	}
	return j, cl, rdb, names
}

// elsewhere is a node that the calls don't go to.
func (j *jam) elsewhere(cl *redistest.Cluster) *redistest.Server {
	if cl.Nodes[0] == j.srv {
		return cl.Nodes[1]
	}
	return cl.Nodes[0]
}

// evals counts the calls that a node has seen.
func evals(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	sent := s.Commands(t)
	return sent["evalsha"] + sent["eval"]
}

// The calls to a node of a cluster share a command although their locks are of many slots, and each has an outcome of its own.
func TestFlightInCluster(t *testing.T) {
	t.Parallel()
	j, cl, _, names := newClusterJam(t, 7)
	ctx := t.Context()
	j.rdb.Set(ctx, names[0], "x", 0)
	j.rdb.HSet(ctx, names[1], "thread", 2)
	other := j.elsewhere(cl)
	for _, s := range cl.Nodes {
		s.Client(t).ScriptLoad(ctx, script.Batch.Source)
	}
	all := j.jammed(ctx, append(names, names[2])...)
	before, beside := evals(t, j.srv), evals(t, other)
	j.off()
	out := make([]outcome, len(all))
	for i, ch := range all {
		out[i] = <-ch
	}
	if sent := evals(t, j.srv) - before; sent != 1 {
		t.Errorf("%d commands for %d calls, want 1", sent, len(all))
	}
	if err := out[0].err; !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a key that is no lock: %v", err)
	}
	var held *HeldError
	if err := out[1].err; !errors.As(err, &held) || held.Owner != "thread" {
		t.Errorf("a lock that is held: %v", err)
	}
	if err := out[7].err; !errors.As(err, &held) || held.Owner != out[2].l.Owner() {
		t.Errorf("a lock that was taken in the same flight: %v", err)
	}

	for i, name := range names[2:] {
		o := out[2+i]
		if o.err != nil {
			t.Fatalf("%s: %v", name, o.err)
		}
		if h, err := j.c.Mutex(name).Inspect(ctx); err != nil || h.Owner != o.l.Owner() || h.Token != o.l.Token() {
			t.Errorf("%s: %+v, %v; want %s and token %d", name, h, err, o.l.Owner(), o.l.Token())
		}
	}
	released := make(chan error, len(names))
	j.quiet()
	j.fly(maxInFlight)
	for i := range names[2:] {
		go func() { released <- out[2+i].l.Release(ctx) }()
		j.eventually(func() bool { return j.pending() == 1+i })
	}
	before = evals(t, j.srv)
	j.off()
	for range names[2:] {
		if err := <-released; err != nil {
			t.Error(err)
		}
	}
	if sent := evals(t, j.srv) - before; sent != 1 {
		t.Errorf("%d commands for %d releases, want 1", sent, len(names)-2)
	}
	for _, name := range names[2:] {
		if !j.gone(name) {
			t.Errorf("%s is held yet", name)
		}
	}
	if sent := evals(t, other) - beside; sent != 0 {
		t.Errorf("another node got %d commands", sent)
	}
}

// Where a slot is on its way, or has gone, the calls of a flight go where each of their locks is. No lock of a slot on its way is granted
// where it isn't, because another one's is: redirected for that one, the script would be let in to both.
func TestFlightMeetsSlotsOnTheirWay(t *testing.T) {
	t.Parallel()
	j, cl, rdb, names := newClusterJam(t, 5)
	ctx := t.Context()
	leaving, heldLeaving, gone, heldGone, stays := names[0], names[1], names[2], names[3], names[4]
	to := j.elsewhere(cl)
	for _, name := range []string{heldLeaving, heldGone} {
		rdb.HSet(ctx, name, "thread", 1)
	}
	for _, name := range []string{leaving, heldLeaving} {
		m := cl.Migrate(t, cl.Slot(t, name), to)
		defer m.Finish(t)
	}
	all := j.jammed(ctx, names...)
	for _, name := range []string{gone, heldGone} {
		cl.Migrate(t, cl.Slot(t, name), to).Finish(t)
	}
	j.off()
	for i, ch := range all {
		o := <-ch
		var held *HeldError
		switch name := names[i]; name {
		case heldLeaving, heldGone:
			if !errors.As(o.err, &held) || held.Owner != "thread" {
				t.Errorf("%s is held: %v, %v", name, o.l, o.err)
			}
		default:
			at := to
			if name == stays {
				at = j.srv
			}
			if o.err != nil {
				t.Errorf("%s: %v", name, o.err)
			} else if keys := at.Client(t).ClusterGetKeysInSlot(ctx, cl.Slot(t, name), 10).Val(); len(keys) == 0 {
				t.Errorf("%s isn't where its slot goes", name)
			}
			j.release(o)
		}
	}
}

// choosy refuses scripts that are declared to use no key, as a proxy does that has to know where they belong.
type choosy struct {
	redistest.Hook
	refused atomic.Int64
	text    string
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func (h *choosy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && cmd.Args()[2] == 0 {
			h.refused.Add(1)
			cmd.SetErr(refusal(h.text))
			return refusal(h.text)
		}
		return next(ctx, cmd)
	}
}

// What refuses a flight gets each call by itself; for good, if it says that it wants the keys in one slot.
func TestFlightThatAClusterRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"CROSSSLOT Keys in request don't hash to the same slot": 1,
		"ERR wrong number of arguments":                         2,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			j, _, rdb, names := newClusterJam(t, 3)
			hook := &choosy{text: text}
			node, err := rdb.MasterForKey(t.Context(), names[0])
			if err != nil {
				t.Fatal(err)
			}
			node.AddHook(hook)
			for range 2 {
				all := j.jammed(t.Context(), names...)
				j.off()
				for _, ch := range all {
					j.release(<-ch)
				}
				j.quiet()
			}
			if n := hook.refused.Load(); n != want {
				t.Errorf("%d flights were refused, want %d", n, want)
			}
		})
	}
}

// panicking is a hook that panics at pipelines, by which calls go that a script's node refused.
type panicking struct{ redistest.Hook }

func (panicking) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { panic("boom") }
}

// A panic while one call of a flight is sent again leaves the others what they were answered.
func TestFlightWhoseSecondPartPanics(t *testing.T) {
	t.Parallel()
	j, cl, rdb, names := newClusterJam(t, 3)
	ctx := t.Context()
	to := j.elsewhere(cl)
	l, err := j.c.Mutex(names[0]).TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	j.quiet()
	all := j.jammed(ctx, names[1], names[2])
	released := make(chan error, 1)
	go func() { released <- l.Release(ctx) }()
	j.eventually(func() bool { return j.pending() == 3 })
	m := cl.Migrate(t, cl.Slot(t, names[2]), to)
	rdb.AddHook(panicking{})
	j.off()
	j.release(<-all[0])
	if err := (<-all[1]).err; err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("the one that was sent again: %v", err)
	}
	if err := <-released; err != nil || !j.gone(names[0]) {
		t.Errorf("Release: %v, and it is gone: %v", err, j.gone(names[0]))
	}
	m.Finish(t)
}

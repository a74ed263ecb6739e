package backend_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
)

// A layout may have nobody for a slot: that of a node that was reset has no slots at all. go-redis then names some node, which must not be
// taken for the one where the lock lives.
func TestNodeOfASlotWithoutOne(t *testing.T) {
	served := func(key string) bool { return hashslot.Of(key) < hashslot.Count/2 }
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		slots := make([]redis.ClusterSlot, 32)
		for i := range slots {
			width := hashslot.Count / 2 / len(slots)
			slots[i] = redis.ClusterSlot{
				Start: i * width, End: (i+1)*width - 1, Nodes: []redis.ClusterNode{{Addr: fmt.Sprint("127.0.0.1:", i+1)}}, // nobody is there
			}
		}
		return slots, nil
	}})
	defer func() { _ = rdb.Close() }()
	b, err := backend.NewRedis(rdb, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := b.Prepare(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		key := fmt.Sprint("k", i)
		if at := b.Node(key); (at != "") != served(key) {
			t.Errorf("the lock of slot %d is said to live at %q", hashslot.Of(key), at)
		}
	}
}

// The program's ClusterSlots function, which may fail for a while, is called with a ctx that ends when the backend is
// closed.
func TestMadeUpLayoutIsAskedForWhileTheClientLives(t *testing.T) {
	asked := make(chan context.Context, 100)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(ctx context.Context) ([]redis.ClusterSlot, error) {
		asked <- ctx
		return nil, context.Canceled
	}})
	defer func() { _ = rdb.Close() }()
	b, err := backend.NewRedis(rdb, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Follow(t.Context())
	ctx := <-asked
	if ctx.Err() != nil {
		t.Errorf("asked with a ctx that has ended: %v", ctx.Err())
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Error("the question outlives the client")
	}
}

// told answers CLUSTER NODES.
type told struct {
	redistest.Hook
	nodes string
}

func (h told) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c, ok := cmd.(*redis.StringCmd); ok && fmt.Sprint(cmd.Args()...) == "clusternodes" {
			c.SetVal(h.nodes)
			return nil
		}
		return next(ctx, cmd)
	}
}

// Current goes by what the node itself says in CLUSTER NODES, because the layout of the program's client may be old.
func TestSubscriptionIsCurrentWhereTheNodeHasTheSlot(t *testing.T) {
	const addr, channel = "127.0.0.1:1", "{k}"
	slot := hashslot.Of(channel)
	const primary = "id " + addr + "@2 myself,master - 0 0 1 connected "
	const replica = "id " + addr + "@2 myself,slave id2 0 0 1 connected\n"
	const other = "id2 127.0.0.1:3@4 master - 0 0 1 connected 0-16383\n"
	for name, tt := range map[string]struct {
		nodes  string
		want   error
		leaves bool
	}{
		"a primary":                 {primary + "0-16383\n", nil, false},
		"a replica":                 {replica + other, backend.ErrGone, true},
		"a primary of other slots":  {fmt.Sprint(primary, slot+1, "-16383\n"), backend.ErrGone, true},
		"a primary of that slot":    {fmt.Sprint(primary, "0 ", slot, "\n"), nil, false},
		"that slot leaves":          {fmt.Sprint(other, primary, "0-16383 [", slot, "->-id2]\n"), nil, true},
		"that slot leaves, too":     {fmt.Sprint(primary, "0-16383 [7-<-id2] [8->-id3] [", slot, "->-id2] [9->-id2]\n"), nil, true},
		"another slot leaves":       {fmt.Sprint(primary, "0-16383 [", slot+1, "->-id2]\n"), nil, false},
		"that slot comes":           {fmt.Sprint(primary, "0-7 [", slot, "-<-id2]\n"), backend.ErrGone, true},
		"it is being given it back": {fmt.Sprint(primary, "0-16383 [", slot, "-<-id2]\n"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					return []redis.ClusterSlot{{Start: 0, End: hashslot.Count - 1, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
				},
				NewClient: func(o *redis.Options) *redis.Client {
					c := redis.NewClient(o)
					c.AddHook(told{nodes: tt.nodes})
					return c
				},
			})
			defer func() { _ = rdb.Close() }()
			b, err := backend.NewRedis(rdb, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			if err := b.Prepare(t.Context(), channel); err != nil {
				t.Fatal(err)
			}
			ps, err := b.Subscribe(t.Context(), backend.Endpoint{Node: b.Node(channel)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ps.Close() }()
			leaving, err := ps.Current(t.Context(), []string{channel})
			if !errors.Is(err, tt.want) || leaving[channel] != tt.leaves {
				t.Errorf("it leaves: %v, %v; want %v, %v", leaving[channel], err, tt.leaves, tt.want)
			}
		})
	}
}

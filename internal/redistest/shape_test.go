package redistest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestReplicated(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 2, redistest.WithPassword("pw"))
	info := r.Primary.Info(t, "replication")
	for _, slave := range []string{"slave0", "slave1"} {
		if !strings.Contains(info[slave], "state=online") {
			t.Errorf("%s is %q right after the start, want online", slave, info[slave])
		}
	}
	rdb := redistest.Open(t, r.Universal())
	ctx := t.Context()
	if err := rdb.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	// WAIT counts for the writes of its own connection; this client has used one.
	n, err := rdb.(*redis.Client).Wait(ctx, 2, time.Minute).Result()
	if err != nil || n != 2 {
		t.Fatalf("WAIT = %d, %v; want 2 replicas", n, err)
	}
	for _, replica := range r.Replicas {
		c := replica.Client(t)
		if got, err := c.Get(ctx, "k").Result(); err != nil || got != "v" {
			t.Errorf("replica %s: GET = %q, %v; want v", replica.Addr(), got, err)
		}
		if err := c.Set(ctx, "k", "w", 0).Err(); err == nil {
			t.Errorf("replica %s took a write", replica.Addr())
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.WithPassword("pw"))
	rdb := redistest.Open(t, c.Universal())
	for i, key := range []string{"b", "c", "a"} { // one of each node
		if owner := c.Owner(t, c.Slot(t, key)); owner != c.Nodes[i] {
			t.Errorf("key %s belongs to %s, want node %d", key, owner.Addr(), i)
		}
		if err := rdb.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Errorf("SET %s: %v", key, err)
		}
	}
}

func TestClusterMigratesSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	ctx := t.Context()
	slot := c.Slot(t, "{s}")
	from := c.Owner(t, slot)
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	direct := from.Client(t) // follows no redirection
	for _, k := range []string{"{s}1", "{s}2"} {
		if err := direct.Set(ctx, k, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	wantErr := func(step, prefix string, err error) {
		t.Helper()
		if err == nil || !strings.HasPrefix(err.Error(), prefix) {
			t.Errorf("%s: %v, want %s", step, err, prefix)
		}
	}

	m := c.Migrate(t, slot, to)
	wantErr("missing key", "ASK", direct.Get(ctx, "{s}none").Err())
	m.MoveKeys(t, "{s}1")
	wantErr("moved key", "ASK", direct.Get(ctx, "{s}1").Err())
	wantErr("one key here, one there", "TRYAGAIN", direct.MGet(ctx, "{s}1", "{s}2").Err())
	m.Finish(t)
	wantErr("after the move", "MOVED", direct.Get(ctx, "{s}2").Err())
	if owner := c.Owner(t, slot); owner != to {
		t.Errorf("owner is %s, want %s", owner.Addr(), to.Addr())
	}
	got, err := redistest.Open(t, c.Universal()).MGet(ctx, "{s}1", "{s}2").Result()
	if err != nil || len(got) != 2 || got[0] != "v" || got[1] != "v" {
		t.Errorf("MGET through the cluster client = %v, %v", got, err)
	}
}

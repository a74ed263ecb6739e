package lock

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/internal/redistest"
)

// TestSlotIsThatOfRedis asks a Redis Cluster node for the slots of names of every kind, and of all the tags of
// our counters.
func TestSlotIsThatOfRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t, redistest.WithConfig("cluster-enabled", "yes")).Client(t)
	keys := []string{"a", "orders:42", "{tag}", "a{tag}b", "{a}{b}", "{{a}}", "{a", "a}", "{}", "{}{a}", "}{", "ключ", "\x00\xff", strings.Repeat("n", 1024)}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		key := make([]byte, 1+random.IntN(12))
		for i := range key {
			key[i] = "{}ab:\x00\xff7"[random.IntN(8)]
		}
		keys = append(keys, string(key))
	}
	for slot := range hashslot.Count {
		tag := hashslot.Tag(slot)
		keys = append(keys, "lockdog:fence:{"+tag+"}")
	}
	answers := make([]*redis.IntCmd, len(keys))
	_, err := rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		for i, key := range keys {
			answers[i] = p.ClusterKeySlot(context.Background(), key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[int]bool)
	for i, key := range keys {
		slot := hashslot.Of(key)
		if int64(slot) != answers[i].Val() {
			t.Errorf("hashslot.Of(%q) is %d, Redis says %d", key, slot, answers[i].Val())
		}
		if strings.HasPrefix(key, "lockdog:fence:") {
			if i := len(seen); slot != i {
				t.Fatalf("the tag in %q is that of slot %d, not %d", key, slot, i)
			}
			seen[slot] = true
		}
	}
	if len(seen) != hashslot.Count {
		t.Errorf("%d tags", len(seen))
	}
}

package backend_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// A layout may have nobody for a slot: that of a node that was reset has no slots at all. go-redis then names some node, which must not be
// taken for the one where the lock lives.
func TestNodeOfASlotWithoutOne(t *testing.T) {
	served := func(key string) bool { return backend.SlotOf(key) < backend.Slots/2 }
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		slots := make([]redis.ClusterSlot, 32)
		for i := range slots {
			width := backend.Slots / 2 / len(slots)
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
			t.Errorf("the lock of slot %d is said to live at %q", backend.SlotOf(key), at)
		}
	}
}

// A program that doesn't know its layout just now is not asked for longer than the client lives.
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
	case <-time.After(10 * time.Second):
		t.Error("the question outlives the client")
	}
}

package redistest_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// Slots that move at the same time lose none of their keys.
func TestMoveSlotsAtTheSameTime(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	rdb := redistest.Open(t, c.Universal()).(*redis.ClusterClient)
	var all sync.WaitGroup
	for i := range 6 {
		key := fmt.Sprint("{", i, "}")
		if err := rdb.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for n := range 15 {
				slot := c.Slot(t, key)
				from := c.Owner(t, slot)
				at := 0
				for c.Nodes[at] != from {
					at++
				}
				c.MoveSlot(t, slot, c.Nodes[(at+1+n%2)%len(c.Nodes)])
				if got, err := rdb.Get(t.Context(), key).Int(); err != nil || got != i {
					t.Errorf("%s after %d moves: %v, %v", key, n+1, got, err)
					return
				}
			}
		})
	}
	all.Wait()
}

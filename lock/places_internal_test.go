package lock

import (
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Locks of one slot push each other out of the client's memory of places, and so do kinds of one name. Each is given its own
// place all the same, and all the slot's counter.
func TestPlaces(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody connects
	defer func() { _ = rdb.Close() }()
	c, err := New(rdb, WithKeyPrefix("app:"))
	if err != nil {
		t.Fatal(err)
	}
	other := *mutexKind
	other.channel = func(key string) string { return "other:" + key }
	locks := []*lock{c.Mutex("{a}x").base(), c.Mutex("{a}y").base(), c.Mutex("plain").base()}
	again := *locks[0]
	again.kind = &other
	locks = append(locks, &again)

	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				for _, lk := range locks {
					want := fmt.Sprint(lk.key, lk.kind.channel(lk.key), fenceKey("app:", lk.key))
					if p := lk.place(); fmt.Sprint(p.keyArg, p.channel, p.counter) != want {
						t.Errorf("the place is %v, want %s", p, want)
						return
					}
				}
			}
		})
	}
	all.Wait()
}

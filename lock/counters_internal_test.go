package lock

import (
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// Locks of one slot are given one counter, others another, whoever asks first.
func TestCounters(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody connects
	defer func() { _ = rdb.Close() }()
	c, err := New(rdb, WithKeyPrefix("app:"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				for _, name := range []string{"{a}x", "{a}y", "plain"} {
					lk := c.Mutex(name).base()
					if got, want := lk.counter, script.FenceKey("app:", lk.key); got != want {
						t.Errorf("the counter of %s is %s, want %s", name, got, want)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if a, b := c.Mutex("{a}x").base().counter, c.Mutex("plain").base().counter; a == b {
		t.Errorf("both slots have %s", a)
	}
}

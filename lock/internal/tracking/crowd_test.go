package tracking

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

// A server that can't track all watched keys reports those that it forgets as changed. The client must not read them
// again and again. When fewer keys are watched, a loss is noticed again.
func TestTrackers_MoreKeysThanAreTracked(t *testing.T) {
	t.Parallel()
	const keys, tracked = 2000, 100
	srv := redistest.Start(t, redistest.WithConfig("tracking-table-max-keys", fmt.Sprint(tracked)))
	rdb := srv.Client(t)
	crowded := make(chan struct{}, 10)
	tr, lost := onRedis(t, rdb, func() { crowded <- struct{}{} })
	watched := make(map[string]*entry)
	pipe := rdb.Pipeline()
	for i := range keys {
		name := fmt.Sprint("key:", i)
		pipe.HSet(t.Context(), name, "1", 1)
		pipe.PExpire(t.Context(), name, time.Hour)
		watched[name] = &entry{member: "1", deadline: time.Now().Add(time.Hour / 2)}
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, e := range watched {
		tr.Watch(Key{Name: name}, e)
	}
	select {
	case <-crowded:
	case <-time.After(patience):
		t.Fatal("nobody was told")
	}

	reads := func() int64 { return srv.Commands(t)["hmget"] }
	before := reads()
	<-time.After(4 * time.Second) // it goes on reading if it isn't stopped
	if n := reads() - before; n > 4*keys {
		t.Errorf("%d reads of %d keys that haven't changed, after it was told", n, keys)
	}
	if len(crowded) > 0 {
		t.Error("told again")
	}

	for i := tracked / 2; i < keys; i++ {
		name := fmt.Sprint("key:", i)
		tr.Unwatch(name, watched[name])
	}
	if err := rdb.Del(t.Context(), "key:0").Err(); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-lost:
		if e != watched["key:0"] {
			t.Errorf("%v isn't lost", e)
		}
	case <-time.After(patience):
		t.Error("the loss of a key isn't noticed")
	}
}

// Pauses grow while checks are in vain, and end when they aren't.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c crowd
		if pause := c.pause(maxVain-1, time.Now()); pause != 0 {
			t.Errorf("a pause of %v for fewer checks than that", pause)
		}
		for round := range 2 {
			time.Sleep(2 * vainWindow)
			c.pause(0, time.Now())
			for n, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
				pause := c.pause(maxVain, time.Now())
				if pause != want*time.Second {
					t.Errorf("round %d: pause %d is %v, want %d s", round, n, pause, want)
				}
				time.Sleep(pause + time.Millisecond)
			}
			c.pause(maxVain-1, time.Now())
		}
	})
}

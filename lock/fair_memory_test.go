package lock_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// What a waiter that died leaves in Redis is gone two days later, though nobody asks for the name again.
func TestFairQueueOfTheDeadIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openMemory(t, kindOfLock{})
		w.hold("a", "java:1", "1", time.Hour)
		keys := []string{
			w.key("a"), "fence",
			"redisson_lock_queue:{" + w.key("a") + "}", "redisson_lock_timeout:{" + w.key("a") + "}", "lockdog_fair:{" + w.key("a") + "}",
		}
		w.raw.eval(lock.Scripts["fair_acquire"].Source, keys, "go:1", 30_000, 0, "", 30_000, "channel", "publish")
		left := func() (n int) {
			for _, key := range w.raw.keys() {
				if strings.HasPrefix(key, "redisson") {
					n++
				}
			}
			return n
		}
		if n := left(); n != 2 {
			t.Fatalf("%d keys, want the queue's two", n)
		}
		<-time.After(48 * time.Hour)
		if n := left(); n != 0 {
			t.Errorf("%d keys are left of a waiter that died two days ago", n)
		}
	})
}

// A waiter that lives has its place, however long it waits.
func TestFairQueueOutlivesAnyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openMemory(t, kindOfLock{})
		l := try(t, w.client(lock.WithWatchdog(far)).FairMutex("a"))
		c := w.client(lock.WithWatchdog(far), lock.WithWaitGraph(0))
		first := begin(t.Context(), c.FairMutex("a"))
		waiting(t, c, 1)
		second := begin(t.Context(), c.FairMutex("a"))
		for range 2 {
			<-time.After(20 * time.Hour)
			queue, _ := w.raw.eval(`return redis.call('lrange', KEYS[1], 0, -1)`, []string{"redisson_lock_queue:{" + w.key("a") + "}"}).([]any)
			if len(queue) != 2 {
				t.Fatalf("the queue is %v, want two waiters", queue)
			}
		}
		free(t, l)
		free(t, granted(t, first))
		free(t, granted(t, second))
	})
}

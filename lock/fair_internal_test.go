package lock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// fairDesk is one fair lock in a fake Redis. The test calls our scripts, and does itself what Redisson's scripts do.
type fairDesk struct {
	*desk
	keys []string // of the scripts
}

const (
	fairKeep         = 30 * time.Second  // how long a waiter of ours that doesn't ask again keeps its place
	redissonPatience = 300 * time.Second // how long one of Redisson's does
)

// newFairDesk returns a lock that Java holds.
func newFairDesk(t *testing.T) *fairDesk {
	t.Helper()
	space := redistest.StartFake(t)
	return fairDeskOf(t, space.Client(t), space.Prefix()+"job")
}

func fairDeskOf(t *testing.T, rdb *redis.Client, key string) *fairDesk {
	t.Helper()
	d := &fairDesk{newDesk(t, rdb, key), []string{
		key, script.FenceKey("", key),
		script.QueueKey(key), script.QueueTimeoutsKey(key), script.QueueAliveKey(key),
	}}
	d.javaTakes("java:0")
	return d
}

// atFairDesks runs tests, each at a desk of its own.
func atFairDesks(t *testing.T, tests map[string]func(d *fairDesk)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(newFairDesk(t)) })
		})
	}
}

// asks runs fair_acquire.lua for a waiter of ours.
func (d *fairDesk) asks(owner string) []any {
	d.t.Helper()
	return d.eval(script.FairAcquire.Source, d.keys, []any{owner, fairKeep.Milliseconds(), 0, "", fairKeep.Milliseconds(), script.Channel(d.key), "publish"})
}

// waits is an asks that must be refused.
func (d *fairDesk) waits(owner string) {
	d.t.Helper()
	if got := d.asks(owner); got[0] != int64(0) {
		d.t.Fatalf("%s, which should wait: %v", owner, got)
	}
}

// givesUp takes a waiter of ours out of the queue, or releases its lock.
func (d *fairDesk) givesUp(owner string) {
	d.t.Helper()
	d.eval(script.FairRelease.Source, d.keys, []any{owner, script.Channel(d.key), "publish"})
}

// dies lets the time of a waiter of ours run out.
func (d *fairDesk) dies(owner string) {
	d.t.Helper()
	for _, key := range d.keys[3:] {
		d.must("ZADD", d.rdb.ZAdd(d.t.Context(), key, redis.Z{Score: d.now() - 1, Member: owner}).Err(), nil)
	}
}

// javaWaits enqueues one of Redisson's, which has its 300 s after the one before it.
func (d *fairDesk) javaWaits(owner string) {
	d.t.Helper()
	after := d.now()
	if last := d.rdb.LIndex(d.t.Context(), d.keys[2], -1).Val(); last != "" {
		after = d.rdb.ZScore(d.t.Context(), d.keys[3], last).Val()
	}
	d.must("RPUSH", d.rdb.RPush(d.t.Context(), d.keys[2], owner).Err(), nil)
	d.must("ZADD", d.rdb.ZAdd(d.t.Context(), d.keys[3], redis.Z{Score: after + float64(redissonPatience.Milliseconds()), Member: owner}).Err(), nil)
}

// javaLooks is what Redisson does before all else: whoever is past its deadline leaves the head of the queue.
func (d *fairDesk) javaLooks() {
	d.t.Helper()
	for {
		head := d.rdb.LIndex(d.t.Context(), d.keys[2], 0).Val()
		if head == "" || d.rdb.ZScore(d.t.Context(), d.keys[3], head).Val() > d.now() {
			return
		}
		d.rdb.LPop(d.t.Context(), d.keys[2])
		d.rdb.ZRem(d.t.Context(), d.keys[3], head)
	}
}

// javaTakes gives the lock to one of Redisson's, which brings all deadlines forward.
func (d *fairDesk) javaTakes(owner string) {
	d.t.Helper()
	d.rdb.LRem(d.t.Context(), d.keys[2], 1, owner)
	d.rdb.ZRem(d.t.Context(), d.keys[3], owner)
	for _, waiter := range d.rdb.ZRange(d.t.Context(), d.keys[3], 0, -1).Val() {
		d.rdb.ZIncrBy(d.t.Context(), d.keys[3], -float64(redissonPatience.Milliseconds()), waiter)
	}
	d.rdb.Del(d.t.Context(), d.key)
	d.must("HSET", d.rdb.HSet(d.t.Context(), d.key, owner, 1).Err(), nil)
	d.must("PEXPIRE", d.rdb.PExpire(d.t.Context(), d.key, time.Hour).Err(), nil)
}

// now is Redis's time in ms.
func (d *fairDesk) now() float64 { return float64(d.rdb.Time(d.t.Context()).Val().UnixMilli()) }

// queue are those that wait, the next first.
func (d *fairDesk) queue(want ...string) {
	d.t.Helper()
	if got := d.rdb.LRange(d.t.Context(), d.keys[2], 0, -1).Val(); !slices.Equal(got, want) {
		d.t.Fatalf("the queue is %q, want %q", got, want)
	}
}

// deadline checks how much time Redisson gives a waiter.
func (d *fairDesk) deadline(owner string, want time.Duration) {
	d.t.Helper()
	got := time.Duration(d.rdb.ZScore(d.t.Context(), d.keys[3], owner).Val()-d.now()) * time.Millisecond
	if got > want || got < want-100*time.Millisecond {
		d.t.Fatalf("Redisson takes %s out of the queue in %v, want %v", owner, got, want)
	}
}

// Redisson brings all deadlines forward by 300 s at each grant to one of its waiters. So the deadline of a waiter of
// ours is 300 s later for each waiter of Redisson's before it, also if waiters of ours have died meanwhile.
func TestFairCountsRedissonsWaiters(t *testing.T) {
	t.Parallel()
	atFairDesks(t, map[string]func(d *fairDesk){
		"Redisson dropped one of ours that had died": func(d *fairDesk) {
			d.waits("go:1")
			d.dies("go:1")
			d.javaLooks()
			d.queue()
			d.javaWaits("java:1")
			d.waits("go:2")
			d.deadline("go:2", redissonPatience+fairKeep)
			d.javaTakes("java:1")
			d.javaLooks()
			d.queue("go:2")
		},
		"several have died": func(d *fairDesk) {
			const dead = 40
			for i := range dead {
				d.waits(fmt.Sprint("go:10", i))
			}
			for i := range dead {
				d.dies(fmt.Sprint("go:10", i))
			}
			d.javaLooks()
			d.javaWaits("java:1")
			d.javaWaits("java:2")
			d.waits("go:2")
			d.deadline("go:2", 2*redissonPatience+fairKeep)
		},
		"one of ours that has died still stands before it": func(d *fairDesk) {
			d.javaWaits("java:1")
			d.waits("go:1")
			d.rdb.ZAdd(d.t.Context(), d.keys[4], redis.Z{Score: d.now() - 1, Member: "go:1"})
			d.waits("go:2")
			d.deadline("go:2", redissonPatience+fairKeep)
			d.queue("java:1", "go:2") // as soon as somebody asks, and not for the 300 s that it had more
		},
		"one of ours dies after one of Redisson's, which gives up": func(d *fairDesk) {
			d.javaWaits("java:1")
			d.waits("go:1")
			time.Sleep(fairKeep + time.Second)
			d.rdb.LRem(d.t.Context(), d.keys[2], 1, "java:1")
			d.rdb.ZRem(d.t.Context(), d.keys[3], "java:1")
			d.rdb.ZIncrBy(d.t.Context(), d.keys[3], -5000, "go:1") // the wait of java:1, not the 300 s that go:1 has more for it
			d.rdb.Del(d.t.Context(), d.key)
			if got := d.asks("go:2"); got[0] != int64(1) {
				d.t.Errorf("the lock is free, and nobody alive is before it: %v", got)
			}
		},
		"one of ours got the lock after Redisson had dropped it": func(d *fairDesk) {
			d.waits("go:1")
			d.rdb.Del(d.t.Context(), d.key, d.keys[2], d.keys[3])
			if got := d.asks("go:1"); got[0] != int64(1) {
				d.t.Fatalf("the lock is free: %v", got)
			}
			d.javaWaits("java:1")
			d.waits("go:2")
			d.deadline("go:2", redissonPatience+fairKeep)
		},
	})
}

// The queue expires long after the last deadline in it, so that a waiter of ours that died last doesn't leave it for ever. Where only waiters of
// Redisson's are left it doesn't expire, as they don't renew it.
func TestFairQueueExpires(t *testing.T) {
	t.Parallel()
	atFairDesks(t, map[string]func(d *fairDesk){
		"after a waiter of ours": func(d *fairDesk) {
			d.waits("go:1")
			d.expires(fairKeep)
		},
		"after one of Redisson's": func(d *fairDesk) {
			d.javaWaits("java:1")
			d.forever()
			d.waits("go:1")
			d.expires(redissonPatience + fairKeep)
			for i := range 9 {
				d.javaWaits(fmt.Sprint("java:1", i))
			}
			d.waits("go:1")
			d.expires(10*redissonPatience + fairKeep)
		},
		"anew whenever a waiter asks": func(d *fairDesk) {
			d.waits("go:1")
			for _, key := range d.keys[2:4] {
				d.rdb.PExpire(d.t.Context(), key, time.Hour)
			}
			d.waits("go:1")
			d.expires(12 * time.Hour)
		},
		"never sooner than before": func(d *fairDesk) {
			d.waits("go:1")
			for _, key := range d.keys[2:4] {
				d.rdb.PExpire(d.t.Context(), key, 90*24*time.Hour)
			}
			d.waits("go:1")
			d.expires(89 * 24 * time.Hour)
		},
		"however late a clock of Redisson's is": func(d *fairDesk) {
			d.javaWaits("java:1")
			d.rdb.ZIncrBy(d.t.Context(), d.keys[3], float64((10 * 24 * time.Hour).Milliseconds()), "java:1")
			d.waits("go:1")
			d.expires(10 * 24 * time.Hour)
		},
		"not when the last of ours has got the lock": func(d *fairDesk) {
			d.waits("go:1")
			d.waits("go:2")
			d.javaWaits("java:1")
			d.rdb.Del(d.t.Context(), d.key)
			d.asks("go:1")
			d.expires(redissonPatience)
			d.givesUp("go:1")
			d.asks("go:2")
			d.forever()
			d.queue("java:1")
		},
		"not when the last of ours has given up": func(d *fairDesk) {
			d.waits("go:1")
			d.javaWaits("java:1")
			d.givesUp("go:1")
			d.forever()
			d.queue("java:1")
		},
	})
}

// expires checks that the queue expires, but not before a time, nor long after it.
func (d *fairDesk) expires(least time.Duration) {
	d.t.Helper()
	for _, key := range d.keys[2:4] {
		if left := d.rdb.PTTL(d.t.Context(), key).Val(); left <= least || left > least+25*time.Hour {
			d.t.Fatalf("%s expires after %v, want %v to a day more", key, left, least)
		}
	}
}

// forever checks that it doesn't.
func (d *fairDesk) forever() {
	d.t.Helper()
	for _, key := range d.keys[2:4] {
		if left := d.rdb.PTTL(d.t.Context(), key).Val(); left != -1 {
			d.t.Fatalf("%s expires after %v, want never", key, left)
		}
	}
}

// held has one of ours hold the lock, instead of Java.
func (d *fairDesk) held() {
	d.t.Helper()
	d.rdb.Del(d.t.Context(), d.key)
	d.take("h:1", "", 0)
}

// meta checks what the holder says of itself: these marks, and then a token.
func (d *fairDesk) meta(want string) {
	d.t.Helper()
	meta := d.rdb.HGet(d.t.Context(), d.key, script.MetaField).Val()
	token, _ := script.ParseMeta(meta)
	if rest := strings.TrimLeft(meta, "+~"); meta != want+rest || token == 0 {
		d.t.Fatalf("the holder's %s is %q, want %q and a token", script.MetaField, meta, want)
	}
}

// Whoever waits for a FairMutex leaves a mark with a holder of ours. The release then wakes the next in the queue, and hands the lock to nobody.
func TestFairWaitersMarkTheHolder(t *testing.T) {
	t.Parallel()
	atFairDesks(t, map[string]func(d *fairDesk){
		"once": func(d *fairDesk) {
			d.held()
			d.meta("")
			d.waits("go:1")
			d.meta("+~")
			d.waits("go:1")
			d.wait("a:1", clientA, 0)
			d.meta("+~")
		},
		"beside that of others": func(d *fairDesk) {
			d.held()
			d.wait("a:1", clientA, 0)
			d.meta("+")
			d.waits("go:1")
			d.meta("+~")
		},
		"but not if they don't wait": func(d *fairDesk) {
			d.held()
			d.eval(script.FairAcquire.Source, d.keys, []any{"go:1", 60_000, 0, "", 0, script.Channel(d.key), "publish"})
			d.meta("")
		},
		"but not one of Redisson's": func(d *fairDesk) {
			d.waits("go:1")
			d.must("the hash", d.rdb.HGetAll(d.t.Context(), d.key).Val(), map[string]string{"java:0": "1"})
		},
		"and it outlives a second acquire": func(d *fairDesk) {
			d.held()
			d.waits("go:1")
			d.take("h:1", "", 0)
			d.meta("+~")
			d.take("h:1", clientA, 0)
			d.meta("+~")
		},
		"and one of a Multi": func(d *fairDesk) {
			take := func() {
				d.eval(script.MultiAcquire.Source, []string{d.key, script.FenceKey("", d.key)}, []any{60_000, 0, "h:1", ""})
			}
			d.rdb.Del(d.t.Context(), d.key)
			take()
			d.meta("")
			d.waits("go:1")
			take()
			d.meta("+~")
		},
		"and a Quorum's raised token": func(d *fairDesk) {
			d.held()
			d.waits("go:1")
			d.eval(script.Raise.Source, []string{d.key, script.FenceKey("", d.key)}, []any{"h:1", 1 << 52, ""})
			d.meta("+~")
		},
		"a release wakes the next that lives": func(d *fairDesk) {
			d.held()
			d.waits("go:1")
			d.waits("go:2")
			d.dies("go:1")
			d.ears["go:2"] = d.hear(script.Channel(d.key) + ":go:2")
			d.must("the message", d.release("h:1", 2), "0")
			d.queue("go:2")
		},
		"nothing is handed over": func(d *fairDesk) {
			d.held()
			d.waits("go:1")
			d.ears["go:1"] = d.hear(script.Channel(d.key) + ":go:1")
			d.must("the answer", d.eval(script.HandOver.Source, d.keys[:2], []any{"h:1", "publish", "numsub", 2, "", "", "", 0, "h:2", 30_000, 0, "", 0}), []int64{1})
			d.must("the message", d.heard("go:1"), "0")
			d.must("the lock", d.rdb.Exists(d.t.Context(), d.key).Val(), 0)
		},
	})
}

// What a server refuses when the lock is deleted doesn't fail the release: the lock is free.
func TestFairReleaseIsDoneWhenTheLockIsFree(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{"PUBLISH", "LREM"} {
		t.Run(refused, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				d := fairDeskOf(t, srv.Client(t), "job")
				d.rdb.Del(t.Context(), d.key)
				d.asks("go:1")
				d.waits("go:dead")
				d.dies("go:dead")
				srv.SetRefusal(func(cmd string, _ ...string) string {
					if cmd == refused {
						return "NOPERM this user has no permissions to run the '" + cmd + "' command"
					}
					return ""
				})
				got := d.eval(script.FairRelease.Source, d.keys, []any{"go:1", script.Channel(d.key), "publish"})
				d.must("the release", got[0], 1)
			})
		})
	}
}

package lock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// desk is one lock, whose scripts a test calls itself.
type desk struct {
	t    *testing.T
	rdb  *redis.Client
	key  string
	ears map[string]*redis.PubSub

	behind map[string]string // by owner: the client, where more wait in it
}

const (
	clientA = "1000000001"
	clientB = "1000000002"
	clientC = "1000000003"
)

func newDesk(t *testing.T, rdb *redis.Client, key string) *desk {
	t.Helper()
	return &desk{t: t, rdb: rdb, key: key, ears: make(map[string]*redis.PubSub), behind: make(map[string]string)}
}

// listen subscribes one more: a client also to the channel on which it is called.
func (c *desk) listen(who ...string) {
	c.t.Helper()
	for _, w := range who {
		c.ears[w] = c.hear(script.Channel(c.key))
		if client := map[string]string{"A": clientA, "B": clientB, "C": clientC}[w]; client != "" {
			c.hear(script.Channel(c.key) + ":" + client)
		}
	}
}

func (c *desk) hear(channel string) *redis.PubSub {
	c.t.Helper()
	sub := c.rdb.Subscribe(c.t.Context(), channel)
	c.t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return sub
}

// ask runs acquire.lua for a client that has waited since then; client "" asks without the wait set. more is 1 if more
// of its calls wait.
func (c *desk) ask(owner, client string, since int64, more int) []any {
	c.t.Helper()
	keys, args := []string{c.key, script.FenceKey("", c.key)}, []any{owner, 60_000, 0, ""}
	if client != "" {
		keys, args = append(keys, script.WaitSetKey(c.key)), append(args, client, since, "")
		if more == 1 {
			c.behind[owner] = client
		}
	}
	return c.eval(script.Acquire.Source, keys, args)
}

func (c *desk) eval(source string, keys []string, args []any) []any {
	c.t.Helper()
	time.Sleep(time.Microsecond) // by which the scripts order; in a bubble no time passes by itself
	reply, err := c.rdb.Eval(c.t.Context(), source, keys, args...).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	if list, ok := reply.([]any); ok {
		return list
	}
	return []any{reply}
}

// take is an ask that must be granted.
func (c *desk) take(owner, client string, more int) {
	c.t.Helper()
	if got := c.ask(owner, client, 0, more); got[0] == int64(0) || got[0] == int64(2) {
		c.t.Fatalf("%s wasn't granted the lock: %v", owner, got)
	}
}

// wait is an ask that must be refused.
func (c *desk) wait(owner, client string, since int64) {
	c.t.Helper()
	if got := c.ask(owner, client, since, 0); got[0] != int64(0) || got[3] == "" {
		c.t.Fatalf("%s, which should be refused: %v", owner, got)
	}
}

// waited has these listen, h:1 hold the lock, and a:1 of client A wait until it is called.
func (c *desk) waited(listeners ...string) {
	c.t.Helper()
	c.listen(listeners...)
	c.take("h:1", "", 0)
	c.wait("a:1", clientA, 0)
}

// release says what was published.
func (c *desk) release(owner string, may int) string {
	c.t.Helper()
	got := c.eval(script.Release.Source, []string{c.key}, []any{owner, "publish", "numsub", may, "", "", c.behind[owner], 60_000})
	message := ""
	for who := range c.ears {
		message = c.heard(who)
	}
	reply := int64(1)
	if message != "0" && !strings.HasPrefix(c.behind[owner], message) {
		reply = 2 // another client was told
	}
	if got[0] != reply && (may != 2 || got[0] != int64(2)) { // with 2 only that client hears, on its own channel
		c.t.Fatalf("release: %v, want %d", got, reply)
	}
	return message
}

func (c *desk) heard(who string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 15*time.Second)
	defer cancel()
	m, err := c.ears[who].ReceiveMessage(ctx)
	if err != nil {
		c.t.Fatalf("%s heard nothing: %v", who, err)
	}
	return m.Payload
}

func (c *desk) must(what string, got, want any) {
	c.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// set is who waits, the longest first.
func (c *desk) set() []string {
	c.t.Helper()
	return c.rdb.ZRange(c.t.Context(), script.WaitSetKey(c.key), 0, -1).Val()
}

// hand_over.lua gives the lock to a waiter of the same client if no other client listens and the call isn't too late.
// Otherwise it releases the lock.
func TestHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.StartFake(t).Client(t)
		for i, tt := range []struct {
			name     string
			ears     int // all that listen ...
			own      int // ... and those of the client
			notAfter int64
			handed   bool
		}{
			{"nobody listens", 0, 0, 0, true},
			{"nobody listens any more", 0, 1, 0, true},
			{"the client listens", 1, 1, 1 << 52, true},
			{"another listens", 1, 0, 0, false},
			{"the client and another listen", 2, 1, 0, false},
			{"too late", 0, 0, 1, false},
		} {
			c := newDesk(t, rdb, fmt.Sprint("job:", i))
			for range tt.ears {
				c.hear(script.Channel(c.key))
			}
			first := c.ask("a:1", "", 0, 0)[0].(int64)
			time.Sleep(time.Millisecond) // else the next token isn't the time
			got := c.eval(script.HandOver.Source, []string{c.key, script.FenceKey("", c.key)},
				[]any{"a:1", "publish", "numsub", 1, "", "", "", 0, "a:2", 30_000, tt.notAfter, "00-trace", tt.own})
			if !tt.handed {
				c.must(tt.name, fmt.Sprint(got, rdb.Exists(t.Context(), c.key).Val()), "[1] 0")
				continue
			}
			token := got[0].(int64)
			if token <= first {
				t.Errorf("%s: token %d after %d", tt.name, token, first)
			}
			c.must(tt.name, rdb.HGetAll(t.Context(), c.key).Val(), map[string]string{"a:2": "1", "@lockdog": fmt.Sprint(token, " 00-trace")})
			if left := rdb.PTTL(t.Context(), c.key).Val(); left <= 0 || left > 30*time.Second {
				t.Errorf("%s: the lease is %v", tt.name, left)
			}
		}
	})
}

func TestReleaseCallsOne(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(c *desk){
		"whoever has waited longest": func(c *desk) {
			c.listen("A", "B", "C")
			c.take("h:1", "", 0)
			c.wait("b:1", clientB, 0)
			c.wait("a:1", clientA, 0)
			c.wait("c:1", clientC, 7)
			c.wait("b:1", clientB, 99) // which has its place already
			c.must("who waits", c.set(), []string{clientC, clientB, clientA})
			c.must("the first release", c.release("h:1", 1), clientC)
			c.take("c:1", clientC, 1) // and goes to the end
			c.must("the second", c.release("c:1", 1), clientB)
			c.take("b:1", clientB, 1)
			c.must("the third", c.release("b:1", 1), clientA)
			c.take("a:1", clientA, 1)
			c.must("the fourth", c.release("a:1", 1), clientC)
			c.must("who waits", c.set(), []string{clientB, clientA})
		},
		"with its place if it was overtaken": func(c *desk) {
			c.listen("A", "B")
			c.take("h:1", "", 0)
			c.wait("a:1", clientA, 0)
			c.wait("b:1", clientB, 0)
			c.must("a release", c.release("h:1", 1), clientA)
			c.take("h:2", "", 0)
			c.wait("a:1", clientA, 1_000)
			c.must("the next", c.release("h:2", 1), clientA)
		},
		"but none who is done": func(c *desk) {
			c.listen("B")
			c.take("h:1", "", 0)
			c.wait("a:1", clientA, 0)
			c.wait("b:1", clientB, 0)
			c.eval("return redis.call('del', KEYS[1])", []string{c.key}, nil)
			c.take("a:1", clientA, 0)
			c.must("who waits", c.set(), []string{clientB})
			c.must("a release", c.release("a:1", 1), clientB)
		},
		"or all, if that one doesn't listen any more, but somebody else does": func(c *desk) {
			c.take("h:1", "", 0)
			c.wait("a:1", clientA, 0)
			c.listen("Java")
			c.must("a release", c.release("h:1", 1), "0")
			c.must("who waits", c.set(), []string{})
		},
		"or all, if it is to": func(c *desk) {
			c.waited("A")
			c.must("a release", c.release("h:1", 0), "0")
			c.must("who waits", c.set(), []string{clientA})
		},
		"or all, while somebody else listens": func(c *desk) {
			c.waited("A", "Java")
			c.must("a release", c.release("h:1", 1), "0")
			c.must("who waits", c.set(), []string{clientA})
		},
		"or all, and forgets who doesn't listen any more": func(c *desk) {
			c.listen("A")
			c.take("h:1", "", 0)
			c.wait("b:1", clientB, 0)
			c.wait("a:1", clientA, 0)
			c.must("a release", c.release("h:1", 1), "0")
			c.must("who waits", c.set(), []string{})
			c.take("h:2", "", 0)
			c.wait("a:1", clientA, 0)
			c.must("the next", c.release("h:2", 1), clientA)
		},
		"or all, where the set holds something else": func(c *desk) {
			c.listen("A")
			c.rdb.Set(c.t.Context(), script.WaitSetKey(c.key), "text", 0)
			c.take("h:1", "", 0)
			c.wait("a:1", clientA, 0)
			c.must("a release", c.release("h:1", 1), "0")
			c.take("a:1", clientA, 1)
			c.must("the next", c.release("a:1", 1), "0")
		},
		"or all, where somebody else has written into it": func(c *desk) {
			c.listen("A", "B")
			c.take("h:1", "", 0)
			c.wait("a:1", clientA, 0)
			c.rdb.ZAdd(c.t.Context(), script.WaitSetKey(c.key), redis.Z{Score: 1, Member: "no number"})
			c.must("a release", c.release("h:1", 1), "0")
			c.must("who waits", c.set(), []string{clientA})
		},
		"on its own channel, and nobody else hears": func(c *desk) {
			c.waited("A")
			all := c.ears["A"]
			c.ears["A"] = c.hear(script.Channel(c.key) + ":" + clientA)
			if called := c.release("h:1", 2); script.ParseWakeUp(called) == 0 {
				c.t.Errorf("a release: %q, want the time", called)
			}
			c.must("who waits", c.set(), []string{})
			c.take("h:2", "", 0)
			c.ears["A"] = all
			c.must("the next message to all", c.release("h:2", 1), "0")
		},
		"or all, if nobody is to hear of it and that one doesn't": func(c *desk) {
			c.waited("Java")
			c.must("a release", c.release("h:1", 2), "0")
		},
		"or all, when the lock is gone": func(c *desk) {
			c.listen("A")
			c.take("h:1", "", 0)
			c.rdb.Del(c.t.Context(), c.key)
			got := c.eval(script.Release.Source, []string{c.key}, []any{"h:1", "publish", "numsub", 2, "", "", "", 0})
			c.must("the answer", got, []int{0, 0, 0})
			c.must("what was published", c.heard("A"), "0")
		},
		"and leaves Redisson's lock as it is": func(c *desk) {
			c.rdb.HSet(c.t.Context(), c.key, "java:1", 1)
			c.wait("a:1", clientA, 0)
			c.must("the hash", c.rdb.HGetAll(c.t.Context(), c.key).Val(), map[string]string{"java:1": "1"})
			c.must("who waits", c.set(), []string{})
		},
		"and nothing is left when the last is done": func(c *desk) {
			c.waited("A")
			if left := c.rdb.PTTL(c.t.Context(), script.WaitSetKey(c.key)).Val(); left <= 0 || left > time.Minute {
				c.t.Errorf("the set expires after %v", left)
			}
			c.release("h:1", 1)
			c.take("a:1", clientA, 0)
			c.must("keys", c.rdb.Exists(c.t.Context(), script.WaitSetKey(c.key)).Val(), 0)
			c.must("a release", c.release("a:1", 1), "0")
		},
		"and who asks too late isn't in it": func(c *desk) {
			c.take("h:1", "", 0)
			c.eval(script.Acquire.Source, []string{c.key, script.FenceKey("", c.key), script.WaitSetKey(c.key)}, []any{"a:1", 60_000, 1, "", clientA, 0, ""})
			c.must("who waits", c.set(), []string{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test(newDesk(t, redistest.StartFake(t).Client(t), "job"))
			})
		})
	}
}

// A full Redis refuses the set of those who wait, and nothing else that who waits needs.
func TestWaitersOfAFullRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := newDesk(t, srv.Client(t), "job")
	c.listen("A")
	c.take("h:1", "", 0)
	c.rdb.ConfigSet(t.Context(), "maxmemory", "1")
	c.wait("a:1", clientA, 0)
	c.must("a release", c.release("h:1", 1), "0")
	c.rdb.ConfigSet(t.Context(), "maxmemory", "0")
	c.take("h:2", "", 0)
	c.wait("a:1", clientA, 0)
	c.rdb.ConfigSet(t.Context(), "maxmemory", "1")
	c.must("the next", c.release("h:2", 1), clientA)
}

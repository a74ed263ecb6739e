package lock

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// What a release does that may grant the lock to a waiter of another client.

const trustMS = 60_000 // longer than a test takes

func entryOf(client, owner string) string {
	return script.Entry(client, trustMS*time.Millisecond, "", owner)
}

// enter adds a client to the wait set with an entry that a release can grant the lock by a message.
func (c *desk) enter(client, owner string) {
	c.t.Helper()
	keys := []string{c.key, script.FenceKey("", c.key), script.WaitSetKey(c.key)}
	if got := c.eval(script.Acquire.Source, keys, []any{owner, trustMS, 0, "", entryOf(client, owner), 0, ""}); got[0] != int64(0) {
		c.t.Fatalf("%s, which should be refused: %v", owner, got)
	}
}

// awaited has these listen, h:1 hold the lock, and a:1 of client A wait for it.
func (c *desk) awaited(listeners ...string) {
	c.t.Helper()
	c.listen(listeners...)
	c.take("h:1", "", 0)
	c.enter(clientA, "a:1")
}

// grantsNothing is a release that publishes a message to all, or to the next, and leaves the lock free.
func (c *desk) grantsNothing(reply int, passOn script.PassOn) {
	c.t.Helper()
	c.must("the reply", c.giveBack("h:1", passOn, "", ""), []int{reply})
	c.must("who has it", c.holders(), "")
}

// giveBack is a release with all of its arguments.
func (c *desk) giveBack(owner string, passOn script.PassOn, remove, add string, next ...any) []any {
	c.t.Helper()
	counter := script.FenceKey("", c.key)
	args := append([]any{owner, "publish", "numsub", int(passOn), counter, remove, add, trustMS}, next...)
	if len(next) > 0 {
		return c.eval(script.HandOver.Source, []string{c.key, counter}, args)
	}
	return c.eval(script.Release.Source, []string{c.key}, args)
}

// hearsGrant is what a client hears on its own channel.
func hearsGrant(t *testing.T, own *redis.PubSub) script.RemoteGrant {
	t.Helper()
	m, err := own.ReceiveTimeout(t.Context(), 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := script.ParseRemoteGrant(m.(*redis.Message).Payload)
	if !ok {
		t.Fatalf("%q grants nothing", m)
	}
	return o
}

func (c *desk) holders() string {
	c.t.Helper()
	fields := c.rdb.HKeys(c.t.Context(), c.key).Val()
	slices.Sort(fields)
	return strings.Join(fields, " ")
}

// fakeDesk is a desk whose server can refuse commands.
type fakeDesk struct {
	*desk
	srv *redistest.Fake
}

func TestReleaseGrants(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(c *fakeDesk){
		"the lock to the client that has waited longest": func(c *fakeDesk) {
			c.listen("A", "B")
			own := c.hear(script.Channel(c.key) + ":" + clientA)
			c.take("h:1", "", 0)
			c.enter(clientA, "a:1")
			c.enter(clientB, "b:1")
			got := c.giveBack("h:1", script.PassOnAnnounced, "", "")
			c.must("the reply", got[0], 4)
			o := hearsGrant(c.t, own)
			c.must("the grant", []any{o.Owner, o.From, o.Now, o.Traceparent}, []any{"a:1", "h:1", got[1], ""})
			c.must("who has it", c.holders(), "@lockdog a:1")
			token, _ := script.ParseMeta(c.rdb.HGet(c.t.Context(), c.key, script.MetaField).Val())
			c.must("the token", o.Token, token)
			c.must("the counter", c.rdb.Get(c.t.Context(), script.FenceKey("", c.key)).Val(), token)
			if left := c.rdb.PTTL(c.t.Context(), c.key).Val(); left <= 0 || left > trustMS*time.Millisecond {
				c.t.Errorf("the lease is %v", left)
			}
			c.must("the others hear", c.heard("B"), "-"+clientA)
			c.must("who waits", c.set(), []string{entryOf(clientB, "b:1")})
		},
		"with the trace of the holder before": func(c *fakeDesk) {
			c.listen("A")
			own := c.hear(script.Channel(c.key) + ":" + clientA)
			c.eval(script.Acquire.Source, []string{c.key, script.FenceKey("", c.key)}, []any{"h:1", trustMS, 0, "00-holder-01"})
			c.enter(clientA, "a:1")
			c.giveBack("h:1", script.PassOnSilently, "", "")
			c.must("the trace", hearsGrant(c.t, own).Traceparent, "00-holder-01")
		},
		"and enters the client that releases, behind the others": func(c *fakeDesk) {
			c.listen("A", "B")
			c.take("a:1", "", 0)
			c.enter(clientB, "b:1")
			next := entryOf(clientA, "a:2")
			c.must("the reply", c.giveBack("a:1", script.PassOnSilently, "", next, "a:2", trustMS, 0, "", 1)[0], 4)
			c.must("who has it", c.holders(), "@lockdog b:1")
			c.must("who waits", c.set(), []string{next})
			c.must("the next reply", c.giveBack("b:1", script.PassOnSilently, "", entryOf(clientB, "b:2"), "b:2", trustMS, 0, "", 1)[0], 4)
			c.must("who has it", c.holders(), "@lockdog a:2")
			c.must("who waits", c.set(), []string{entryOf(clientB, "b:2")})
		},
		"without a message to a waiter of the same client, whose turn it is": func(c *fakeDesk) {
			c.listen("A", "B")
			c.take("a:1", "", 0)
			c.enter(clientA, "a:2")
			c.enter(clientB, "b:1")
			next := entryOf(clientA, "a:2")
			c.must("the reply", c.giveBack("a:1", script.PassOnSilently, "", next, "a:2", trustMS, 0, "", 1)[0], 5)
			c.must("who has it", c.holders(), "@lockdog a:2")
			c.must("who waits", c.set(), []string{entryOf(clientB, "b:1")})
		},
		"and removes the entry of one who has left": func(c *fakeDesk) {
			c.awaited("A", "B")
			c.enter(clientB, "b:1")
			gone := entryOf(clientA, "a:1")
			c.must("the reply", c.giveBack("h:1", script.PassOnSilently, gone, entryOf(clientA, "a:2"))[0], 4)
			c.must("who has it", c.holders(), "@lockdog b:1")
			c.must("who waits", c.set(), []string{entryOf(clientA, "a:2")})
		},
		"nothing to the owner who releases it": func(c *fakeDesk) {
			c.awaited("A")
			c.rdb.ZRem(c.t.Context(), script.WaitSetKey(c.key), entryOf(clientA, "a:1"))
			c.rdb.ZAdd(c.t.Context(), script.WaitSetKey(c.key), redis.Z{Score: float64(time.Now().UnixMicro()), Member: entryOf(clientA, "h:1")})
			c.grantsNothing(2, script.PassOnAnnounced)
		},
		"nothing to a client that has been silent for long": func(c *fakeDesk) {
			c.listen("A")
			c.take("h:1", "", 0)
			long := float64(time.Now().Add(-(trustMS + 1000) * time.Millisecond).UnixMicro())
			c.enter(clientA, "a:1")
			c.rdb.ZAdd(c.t.Context(), script.WaitSetKey(c.key), redis.Z{Score: long, Member: entryOf(clientA, "a:1")})
			c.grantsNothing(2, script.PassOnAnnounced)
			c.must("what is published", c.heard("A"), clientA)
		},
		"nothing to one who doesn't listen any more, and wakes all": func(c *fakeDesk) {
			c.listen("Java")
			c.take("h:1", "", 0)
			c.enter(clientA, "a:1")
			c.grantsNothing(1, script.PassOnSilently)
			c.must("what is published", c.heard("Java"), "0")
			c.must("who waits", c.set(), []string{})
		},
		"nothing where it may not be told": func(c *fakeDesk) {
			c.awaited("A")
			c.srv.SetRefusal(func(cmd string, args ...string) string {
				if cmd == "PUBLISH" && args[0] == script.Channel(c.key)+":"+clientA {
					return "NOPERM this user has no permissions to access one of the channels used as arguments"
				}
				return ""
			})
			c.grantsNothing(1, script.PassOnAnnounced)
			c.must("what is published", c.heard("A"), "0")
		},
		"nothing where the counter isn't there": func(c *fakeDesk) {
			c.awaited("A")
			got := c.eval(script.Release.Source, []string{c.key}, []any{"h:1", "publish", "numsub", 1, "counter:of:" + c.key, "", "", 0})
			c.must("the reply", got, []int{2})
			c.must("who has it", c.holders(), "")
			c.must("the counter", c.rdb.Exists(c.t.Context(), "counter:of:"+c.key).Val(), 0)
		},
		"a larger token where the clock is behind": func(c *fakeDesk) {
			c.listen("A")
			own := c.hear(script.Channel(c.key) + ":" + clientA)
			c.take("h:1", "", 0)
			c.enter(clientA, "a:1")
			const last = int64(3_000_000_000_000_000)
			counter := c.key + ":counter"
			c.rdb.Set(c.t.Context(), counter, last, 0)
			c.eval(script.Release.Source, []string{c.key}, []any{"h:1", "publish", "numsub", 1, counter, "", "", 0})
			c.must("the token", hearsGrant(c.t, own).Token, last+1)
			c.must("the counter", c.rdb.Get(c.t.Context(), counter).Val(), last+1)
		},
		"nothing where somebody waits for a FairMutex": func(c *fakeDesk) {
			c.awaited("A")
			c.rdb.HSet(c.t.Context(), c.key, script.MetaField, "+~12")
			c.grantsNothing(2, script.PassOnAnnounced)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				test(&fakeDesk{newDesk(t, srv.Client(t), "job"), srv})
			})
		})
	}
}

// A client that subscribes at a replica hears messages, but the primary doesn't count it as a subscriber. A client that
// hears of a grant believes it. So a release that doesn't count the client must not publish a grant to it.
func TestReleaseGrantsNothingToWhomItDoesNotCount(t *testing.T) {
	t.Parallel()
	servers := redistest.StartReplicated(t, 1)
	c := newDesk(t, servers.Primary.Client(t), "job")
	own := newDesk(t, servers.Replicas[0].Client(t), c.key).hear(script.Channel(c.key) + ":" + clientA)
	c.listen("Java") // is counted in its place
	c.take("h:1", "", 0)
	c.enter(clientA, "a:1")
	c.must("the reply", c.giveBack("h:1", script.PassOnAnnounced, "", ""), []int{1})
	c.must("what is published", c.heard("Java"), "0")
	c.must("who has it", c.holders(), "")
	m, err := own.ReceiveTimeout(t.Context(), 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := script.ParseRemoteGrant(m.(*redis.Message).Payload); ok {
		t.Errorf("it was granted the lock, which is free: %+v", o)
	}
}

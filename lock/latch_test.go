package lock_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// closed gives a latch its count.
func closed(t *testing.T, c *lock.Client, name string, n int) *lock.Latch {
	t.Helper()
	l := c.Latch(name)
	if done, err := l.TrySetCount(t.Context(), n); !done || err != nil {
		t.Fatalf("TrySetCount: %v, %v", done, err)
	}
	return l
}

// awaiting calls Wait on another goroutine.
func awaiting(ctx context.Context, l *lock.Latch) <-chan error {
	c := make(chan error, 1)
	go func() { c <- l.Wait(ctx) }()
	return c
}

func count(t *testing.T, l *lock.Latch) int {
	t.Helper()
	n, err := l.Count(t.Context())
	must(t, "Count", err)
	return n
}

func (d *desk) gateChannel() string {
	return "redisson_countdownlatch__channel__{" + d.key("gate") + "}"
}

// TestLatch checks the key and the messages of a latch. (When it opens, and for whom: the conformance suite.)
func TestLatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c, ctx := d.client(lock.WithLease(time.Hour)), t.Context()
		heard := messages(t, d.rdb, d.gateChannel())
		l := c.Latch("gate")
		must(t, "Wait for a latch that was never set", l.Wait(ctx))
		must(t, "Wait without replicas", c.Latch("gate", lock.WithReplicas(1, 10*time.Millisecond)).Wait(ctx))
		must(t, "CountDown", l.CountDown(ctx))
		mustBe(t, "key", d.value("gate"), "")

		closed(t, c, "gate", 2)
		mustBe(t, "message", await(t, "a message", heard).Payload, "1")
		mustBe(t, "key", d.value("gate"), "2")
		must(t, "CountDown", l.CountDown(ctx))
		mustBe(t, "key", d.value("gate"), "1")
		must(t, "CountDown", l.CountDown(ctx))
		mustBe(t, "message", await(t, "a message", heard).Payload, "0")
		mustBe(t, "key", d.value("gate"), "")

		for _, open := range []string{"0", "-3"} { // not of our making
			d.rdb.Set(ctx, d.key("gate"), open, 0)
			must(t, "Wait", l.Wait(ctx))
			mustBe(t, "count", count(t, l), 0)
			closed(t, c, "gate", 1)
			mustBe(t, "message", await(t, "a message", heard).Payload, "1")
		}
		d.rdb.Del(ctx, d.key("gate"))
		select {
		case m := <-heard:
			t.Errorf("another message: %q", m.Payload)
		default:
		}
	})
}

// However many wait in one process: one subscription, one question when it opens, and all go on.
func TestLatchOfMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c, giver, ctx := d.client(lock.WithLease(time.Hour)), newDesk(t), t.Context()
		there := giver.open(t, d.sp.Client(t), lock.WithKeyPrefix(d.sp.Prefix()))
		must(t, "Wait", there.Latch("open").Wait(ctx)) // the server knows the script
		l := closed(t, there, "gate", 1)
		const many = 100
		asked := func() int { return d.sent(t, telemetry.PurposeAcquire) }
		first := awaiting(ctx, c.Latch("gate"))
		waiting(t, c, 1)
		eventually(t, patience, func() bool { return asked() == 2 }) // once more when subscribed
		var all sync.WaitGroup
		for range many {
			all.Go(func() { must(t, "Wait", c.Latch("gate").Wait(ctx)) })
		}
		waiting(t, c, many+1)
		mustBe(t, "questions while it is closed", asked(), 2)
		mustBe(t, "subscribers", d.rdb.PubSubNumSub(ctx, d.gateChannel()).Val()[d.gateChannel()], int64(1))
		for _, info := range c.Leases() {
			if info.Kind != "latch" || info.Name != "gate" || info.State != lock.StateWaiting {
				t.Errorf("a waiter is seen as %+v", info)
			}
		}
		mustBe(t, "waiting", d.sum(t, telemetry.MetricWaiting), many+1.)
		must(t, "CountDown", l.CountDown(ctx))
		all.Wait()
		must(t, "Wait", await(t, "Wait", first))
		mustBe(t, "questions", asked(), 3)
		mustBe(t, "waiting", d.sum(t, telemetry.MetricWaiting), 0.)
		mustBe(t, "opened for", d.sum(t, telemetry.MetricAcquisitions, "lockdog.outcome=acquired"), many+1.)
		mustBe(t, "counted down", giver.sum(t, telemetry.MetricReleases, "lockdog.outcome=released"), 1.)
		if attrs := attrsOf(giver.spansNamed("release default")[0]); attrs[telemetry.KeyKind] != "latch" || attrs[telemetry.KeyName] != "gate" {
			t.Errorf("the span of CountDown has %v", attrs)
		}
		if n := len(d.spansNamed("acquire default")); n != many+1 {
			t.Errorf("%d spans of Wait", n)
		}
		eventually(t, patience, func() bool { return d.rdb.PubSubNumSub(ctx, d.gateChannel()).Val()[d.gateChannel()] == 0 })
	})
}

// The answer that a latch is open is only for waiters that stood in line when Redis was asked. Before a later Wait was
// called, the latch may have been closed again, as it is where one latch is used for barrier after barrier.
func TestLatchClosedAgainWhileTheAnswerIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		rdb, wire := throughProxy(t, d.sp)
		loadScripts(t, d.rdb, "latch_wait")
		c, other, ctx := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix())), d.client(), t.Context()
		gate := closed(t, other, "gate", 1)
		first := awaiting(ctx, c.Latch("gate"))
		asleep(t, c, 1)
		with := awaiting(ctx, c.Latch("gate"))
		waiting(t, c, 2)

		wire.set(redistest.ReplyTo(redistest.Hold, wire.script("latch_wait", "gate"), redistest.Nth(1)))
		must(t, "CountDown", gate.CountDown(ctx))
		wire.proxy.AwaitHeld(t, 1)
		closed(t, other, "gate", 1)
		late := awaiting(ctx, c.Latch("gate"))
		waiting(t, c, 3)
		wire.set(nil)
		wire.proxy.Release()
		must(t, "Wait", await(t, "the first", first))
		must(t, "Wait", await(t, "who stood in line with it", with))
		eventually(t, patience, func() bool {
			if len(late) > 0 {
				t.Fatalf("Wait of a latch that is closed: %v; the count is %d", <-late, count(t, gate))
			}
			return lock.Asleep(c, 1)
		})
		must(t, "CountDown", gate.CountDown(ctx))
		must(t, "Wait", await(t, "who came later", late))
	})
}

// Whoever leaves while Redis is asked leaves nothing to be swept.
func TestLatchWaitIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		rdb, wire := throughProxy(t, d.sp, answerWithin(100*time.Millisecond))
		c := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix()), lock.WithLease(numberLease))
		l := closed(t, c, "gate", 1)
		before := d.sent(t, telemetry.PurposeRelease)
		wire.set(redistest.ReplyTo(redistest.Drop, wire.script("latch_wait", "gate")))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		mustMatch(t, l.Wait(ctx), context.DeadlineExceeded)
		pass(t, 200*time.Millisecond)
		wire.set(nil)
		mustBe(t, "count", count(t, l), 1)
		mustBe(t, "releases", d.sent(t, telemetry.PurposeRelease), before)
	})
}

// A CountDown that Redis refuses opens nothing for anybody: Redisson's waiters would believe a message.
func TestRefusedCountDownIsNotPublished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t)
		c := newScope(t).open(t, srv.Client(t), lock.WithLease(1500*time.Millisecond))
		gate := c.Latch("gate")
		if done, err := gate.TrySetCount(t.Context(), 1); !done || err != nil {
			t.Fatal(done, err)
		}
		heard := messages(t, rdb, "redisson_countdownlatch__channel__{gate}")
		srv.SetRefusal(func(cmd string, _ ...string) string { // as with min-replicas-to-write
			if slices.Contains([]string{"DEL", "SET", "DECR"}, cmd) {
				return "NOREPLICAS Not enough good replicas to write."
			}
			return ""
		})
		if err := gate.CountDown(t.Context()); err == nil || !strings.Contains(err.Error(), "NOREPLICAS") {
			t.Errorf("CountDown: %v", err)
		}
		must(t, "PUBLISH", rdb.Publish(t.Context(), "redisson_countdownlatch__channel__{gate}", "end").Err())
		mustBe(t, "first message", await(t, "a message", heard).Payload, "end")
		mustBe(t, "count", count(t, gate), 1)
		srv.SetRefusal(nil)
		eventually(t, patience, func() bool { return count(t, gate) == 0 }) // the client goes on with it
	})
}

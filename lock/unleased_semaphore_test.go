package lock_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// TestUnleasedSemaphore checks the key and the messages of an UnleasedSemaphore. (Who gets in: the conformance suite.)
func TestUnleasedSemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c, ctx := d.client(), t.Context()
		s := c.UnleasedSemaphore("pool")
		heard := messages(t, d.rdb, "redisson_sc:{"+d.key("pool")+"}")
		told := func(want int) {
			t.Helper()
			mustBe(t, "message", await(t, "a message", heard).Payload, strconv.Itoa(want))
		}

		mustMention(t, s.TryAcquire(ctx, 1), "pool", "too few permits")
		mustBe(t, "key of a semaphore without permits", d.value("pool"), "")
		must(t, "TrySetPermits", second(s.TrySetPermits(ctx, 5)))
		told(5)
		must(t, "Acquire", s.Acquire(ctx, 5))
		mustBe(t, "left", d.value("pool"), "0")
		must(t, "Release", s.Release(ctx, 4))
		told(4)
		must(t, "AddPermits", s.AddPermits(ctx, -6))
		mustBe(t, "left", available(t, s), -2)
		must(t, "Release", s.Release(ctx, 1)) // nobody can get in: Redisson's waiters can't do with a negative message
		must(t, "AddPermits", s.AddPermits(ctx, 3))
		told(2)
		must(t, "AddPermits", s.AddPermits(ctx, 0))
		mustBe(t, "left", available(t, s), 2)
		mustBe(t, "expiry", d.rdb.TTL(ctx, d.key("pool")).Val(), -time.Nanosecond)
		if done, err := c.UnleasedSemaphore("none").TrySetPermits(ctx, 0); !done || err != nil {
			t.Errorf("TrySetPermits(0): %v, %v", done, err)
		}
		mustBe(t, "left", d.value("none"), "0")
		select {
		case m := <-heard:
			t.Errorf("another message: %q", m.Payload)
		default:
		}
	})
}

// Waiters of one process are served in the order they came, however many they want. When the first leaves, the next may find
// enough.
func TestUnleasedSemaphoreLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c, ctx := d.client(lock.WithLease(time.Hour)), t.Context() // asking again takes ten seconds
		s := c.UnleasedSemaphore("pool")
		must(t, "Release", s.Release(ctx, 2))
		impatient, leave := context.WithCancel(ctx)
		first := acquiring(impatient, s, 3)
		waiting(t, c, 1)
		line := []<-chan error{}
		for i, n := range []int{2, 1, 1} {
			line = append(line, acquiring(ctx, s, n))
			waiting(t, c, i+2)
		}
		always(t, 50*time.Millisecond, func() bool { return len(line[1]) == 0 && available(t, s) == 2 })
		mustBe(t, "patience", c.Leases()[0].Lease, lock.DefaultLease) // an hour would be too much for what has no lease
		must(t, "TryAcquire", s.TryAcquire(ctx, 1))                   // it may overtake
		asked := d.sent(t, telemetry.PurposeAcquire)
		must(t, "Release", s.Release(ctx, 1))
		eventually(t, patience, func() bool { return d.sent(t, telemetry.PurposeAcquire) > asked })
		pass(t, 50*time.Millisecond) // the first was told that it isn't enough, and sleeps again

		leave()
		mustMatch(t, await(t, "the first", first), context.Canceled, lock.ErrHeld)
		must(t, "the second", await(t, "the second", line[0]))
		always(t, 50*time.Millisecond, func() bool { return len(line[1]) == 0 })
		must(t, "Release", s.Release(ctx, 2)) // one message, two waiters of this process
		must(t, "the third", await(t, "the third", line[1]))
		must(t, "the fourth", await(t, "the fourth", line[2]))
		mustBe(t, "left", available(t, s), 0)
		raw := acquiring(ctx, s, 1)
		asleep(t, c, 1)
		d.rdb.IncrBy(ctx, d.key("pool"), 1)
		d.rdb.Publish(ctx, "redisson_sc:{"+d.key("pool")+"}", "1") // as Redisson does
		must(t, "the last", await(t, "the last", raw))
		if n := d.sum(t, telemetry.MetricWakeups, "lockdog.wakeup.source=poll"); n != 0 {
			t.Errorf("%v waiters had to look by themselves", n)
		}

		line = nil
		for i, n := range []int{1, 4, 1} {
			line = append(line, acquiring(ctx, s, n))
			asleep(t, c, i+1)
		}
		must(t, "Release", s.Release(ctx, 4))
		must(t, "the waiter for one", await(t, "the waiter for one", line[0]))
		always(t, 50*time.Millisecond, func() bool { return len(line[1])+len(line[2]) == 0 })
		must(t, "Release", s.Release(ctx, 2))
		must(t, "the waiter for four", await(t, "the waiter for four", line[1]))
		must(t, "the last waiter for one", await(t, "the last waiter for one", line[2]))
	})
}

// If a message is lost, a waiter asks by itself after a quarter to a third of the lease. If its connection is lost, it
// asks when the subscription is back.
func TestNumbersLostMessage(t *testing.T) {
	t.Parallel()
	type number struct {
		channel string // a part of its name
		wait    func(c *lock.Client) error
		open    func(c *lock.Client) error
		raw     func(d *desk) error
	}
	ctx := context.Background()
	for name, of := range map[string]number{
		"permits": {
			"redisson_sc",
			func(c *lock.Client) error { return c.UnleasedSemaphore("a").Acquire(ctx, 1) },
			func(c *lock.Client) error { return c.UnleasedSemaphore("a").Release(ctx, 1) },
			func(d *desk) error { return d.rdb.IncrBy(ctx, d.key("a"), 1).Err() },
		},
		"latch": {
			"countdownlatch",
			func(c *lock.Client) error { return c.Latch("a").Wait(ctx) },
			func(c *lock.Client) error { return c.Latch("a").CountDown(ctx) },
			func(d *desk) error { return d.rdb.Del(ctx, d.key("a")).Err() },
		},
	} {
		for how, verdict := range map[string]redistest.Verdict{
			"never published": redistest.Pass, "dropped": redistest.Drop, "connection lost": redistest.Cut,
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					d := newDesk(t)
					rdb, wire := throughProxy(t, d.sp)
					c, other := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix()), lock.WithLease(numberLease)), d.client()
					if name == "latch" {
						closed(t, other, "a", 1)
					}
					got := make(chan error, 1)
					go func() { got <- of.wait(c) }()
					asleep(t, c, 1)
					start := time.Now()
					if verdict == redistest.Pass {
						must(t, "raw", of.raw(d))
					} else {
						wire.set(redistest.When(redistest.Down, verdict, redistest.Contains(of.channel)))
						must(t, "open", of.open(other))
					}
					must(t, "the wait", await(t, "the wait", got))
					if took := time.Since(start); took > numberLease/3 || took < numberLease/4 && verdict != redistest.Cut {
						t.Errorf("it took %v", took)
					}
					for reason, want := range map[string]float64{"message_missed": 1, "expired": 0} {
						if n := d.sum(t, telemetry.MetricTakeovers, "lockdog.reason="+reason); n != want {
							t.Errorf("takeovers: %v", d.series(t, telemetry.MetricTakeovers))
						}
					}
				})
			})
		}
	}
}

// A client that closes gives back what it can: while it waits for leases, permits too.
func TestReleaseWhileClosing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c, ctx := d.client(lock.WithLease(far)), t.Context()
		must(t, "Release", c.UnleasedSemaphore("pool").Release(ctx, 1))
		must(t, "Acquire", c.UnleasedSemaphore("pool").Acquire(ctx, 1))
		if _, err := c.Latch("gate").TrySetCount(ctx, 1); err != nil {
			t.Fatal(err)
		}
		l := try(t, c.Mutex("job"))
		closed := closing(c, ctx)
		await(t, "the lease's Context", l.Context().Done())
		mustMatch(t, c.UnleasedSemaphore("pool").TryAcquire(ctx, 1), lock.ErrClosed)
		must(t, "Release", c.UnleasedSemaphore("pool").Release(ctx, 1))
		must(t, "CountDown", c.Latch("gate").CountDown(ctx))
		free(t, l)
		must(t, "Close", await(t, "Close", closed))
		mustBe(t, "permits", d.value("pool"), "1")
		mustBe(t, "count", d.value("gate"), "")
	})
}

func TestUnleasedSemaphoreTelemetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c, ctx := d.client(), t.Context()
		s := c.UnleasedSemaphore("pool:a")
		must(t, "Release", s.Release(ctx, 2))
		got := acquiring(ctx, s, 3)
		waiting(t, c, 1)
		if l := c.Leases()[0]; l.Kind != "unleased_semaphore" || l.Name != "pool:a" || l.WaitsFor != "" || d.sum(t, telemetry.MetricWaiting) != 1 {
			t.Errorf("the waiter is seen as %+v", l)
		}
		must(t, "AddPermits", s.AddPermits(ctx, 1)) // nothing is said of that
		must(t, "Acquire", await(t, "Acquire", got))
		mustMatch(t, s.TryAcquire(ctx, 1), lock.ErrHeld)
		mustMatch(t, s.Release(ctx, 0), lock.ErrInvalid) // isn't counted
		d.rdb.Set(ctx, d.key("pool:a"), "x", 0)
		mustMatch(t, s.Release(ctx, 1), lock.ErrInvalid)
		mustMatch(t, s.Acquire(ctx, 1), lock.ErrInvalid)

		for _, want := range []struct {
			metric telemetry.Metric
			label  string
			n      float64
		}{
			{telemetry.MetricAcquisitions, "lockdog.outcome=acquired", 1},
			{telemetry.MetricAcquisitions, "lockdog.outcome=held", 1},
			{telemetry.MetricAcquisitions, "lockdog.outcome=error", 1},
			{telemetry.MetricAcquireDuration, "lockdog.outcome=acquired", 1},
			{telemetry.MetricReleases, "lockdog.outcome=released", 1},
			{telemetry.MetricReleases, "lockdog.outcome=error", 1},
			{telemetry.MetricReleaseDuration, "lockdog.group=pool", 2},
			{telemetry.MetricHeld, "lockdog.group=pool", 0},
			{telemetry.MetricWaiting, "lockdog.group=pool", 0},
			{telemetry.MetricErrors, "lockdog.operation=acquire", 1},
			{telemetry.MetricErrors, "lockdog.operation=release", 1},
		} {
			if got := d.sum(t, want.metric, want.label); got != want.n {
				t.Errorf("%s %s: %v, want %v", want.metric.Name, want.label, got, want.n)
			}
		}
		spans := d.spansNamed("acquire pool")
		if len(spans) != 3 || len(d.spansNamed("release pool")) != 2 || len(d.spansNamed("held pool"))+len(d.spansNamed("hold pool")) != 0 {
			t.Fatalf("spans: %v", d.spans.GetSpans())
		}
		attrs := attrsOf(spans[0])
		if attrs[telemetry.KeyKind] != "unleased_semaphore" || attrs[telemetry.KeyOutcome] != "acquired" || attrs[telemetry.KeyName] != "pool:a" {
			t.Errorf("the span has %v", attrs)
		}
		for _, span := range slices.Concat(spans, d.spansNamed("release pool")) {
			for _, key := range []attribute.Key{telemetry.KeyLease, telemetry.KeyToken, telemetry.KeyOwner, telemetry.KeyBlockedBy} {
				if v, ok := attrsOf(span)[key]; ok {
					t.Errorf("%s has %s=%s, which nothing is to be said of", span.Name, key, v)
				}
			}
		}
	})
}

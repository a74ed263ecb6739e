package lock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Semaphores and latches among processes, and in a cluster.

const (
	crowdMost  = 3 // permits
	takerLease = 1500 * time.Millisecond
)

// childCrowd takes permits again and again on many goroutines, when the gate opens, and watches how many are taken at a time:
// everybody with a permit counts in Redis.
func childCrowd(addr, prefix string, say func(string, ...any)) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	c, err := lock.New(rdb, lock.WithKeyPrefix(prefix), lock.WithWatchdog(steady))
	if err != nil {
		return err
	}
	defer closeSoon(c)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	say("ready")
	if err := c.Latch("gate").Wait(ctx); err != nil {
		return err
	}
	count := func(name string) error {
		n, err := rdb.Incr(ctx, prefix+"inside "+name).Result()
		if n > crowdMost {
			return fmt.Errorf("%d inside", n)
		}
		if err == nil {
			_, err = rdb.Decr(ctx, prefix+"inside "+name).Result()
		}
		return err
	}
	const workers, rounds = 8, 12
	errs := make(chan error, 2*workers)
	for range workers {
		go func() {
			for range rounds {
				if err := c.UnleasedSemaphore("bare").Acquire(ctx, 1); err != nil {
					errs <- err
					return
				}
				if err := count("bare"); err != nil {
					errs <- err
					return
				}
				if err := c.UnleasedSemaphore("bare").Release(ctx, 1); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
		go func() {
			for range rounds {
				if err := c.Semaphore("leased").Do(ctx, func(context.Context, *lock.Lease) error { return count("leased") }); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 2 * workers {
		if err := <-errs; err != nil {
			return err
		}
	}
	if err := c.Latch("over").CountDown(ctx); err != nil {
		return err
	}
	say("done")
	return nil
}

// childTaker takes one permit of each kind, and has no time to give them back.
func childTaker(addr, prefix string, say func(string, ...any)) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	c, err := lock.New(rdb, lock.WithKeyPrefix(prefix), lock.WithWatchdog(takerLease))
	if err != nil {
		return err
	}
	if err := c.UnleasedSemaphore("bare").Acquire(context.Background(), 1); err != nil {
		return err
	}
	if _, err := c.Semaphore("leased").Lock(context.Background()); err != nil {
		return err
	}
	say("taken")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// Three processes share permits and latches.
func TestSemaphoreOfProcesses(t *testing.T) {
	t.Parallel()
	d := newDeskAt(t, redistest.Shared(t))
	c, ctx := d.client(), t.Context()
	must(t, "Release", c.UnleasedSemaphore("bare").Release(ctx, crowdMost))
	permits(t, c, "leased", crowdMost)
	closed(t, c, "gate", 1)
	closed(t, c, "over", 3)
	var crowd []*child
	for range 3 {
		ch := startChild(t, "crowd", d.sp.Addr(), d.sp.Prefix())
		ch.expect(t, "ready")
		crowd = append(crowd, ch)
	}
	must(t, "CountDown", c.Latch("gate").CountDown(ctx))
	ending, end := context.WithTimeout(ctx, 2*patience)
	defer end()
	must(t, "Wait", c.Latch("over").Wait(ending))
	for _, ch := range crowd {
		ch.expect(t, "done")
		ch.wait(t)
	}
	mustBe(t, "permits", available(t, c.UnleasedSemaphore("bare")), crowdMost)
	mustBe(t, "permits with leases", available(t, c.Semaphore("leased")), crowdMost)
	mustBe(t, "permits in Redis", len(d.leases("leased")), 0)
}

// Of a process that dies, permits with a lease come back, bare ones don't.
func TestSemaphoreOfADeadProcess(t *testing.T) {
	t.Parallel()
	d := newDeskAt(t, redistest.Shared(t))
	c, ctx := d.client(), t.Context()
	must(t, "Release", c.UnleasedSemaphore("bare").Release(ctx, 1))
	permits(t, c, "leased", 1)
	ch := startChild(t, "taker", d.sp.Addr(), d.sp.Prefix())
	ch.expect(t, "taken")
	leased, bare := begin(ctx, c.Semaphore("leased")), acquiring(ctx, c.UnleasedSemaphore("bare"), 1)
	always(t, takerLease+numberLease, func() bool { return len(leased) == 0 }) // kept alive
	ch.kill(t)
	died := time.Now()
	l := granted(t, leased)
	if took := time.Since(died); took > patience/3 {
		t.Errorf("it took %v", took)
	}
	free(t, l)
	always(t, numberLease, func() bool { return len(bare) == 0 })
	must(t, "AddPermits", c.UnleasedSemaphore("bare").AddPermits(ctx, 1)) // somebody makes up for it
	must(t, "Acquire", await(t, "Acquire", bare))
}

// TestSemaphoreCluster takes turns on one cluster of three.
func TestSemaphoreCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	t.Run("all of a name share its slot", func(t *testing.T) { numbersShareASlot(t, c) })
	t.Run("a waiter is woken", func(t *testing.T) { wokenInACluster(t, c) })
	t.Run("a slot moves", func(t *testing.T) { numbersMove(t, c) })
	t.Run("a latch with a tag", func(t *testing.T) { latchWithATag(t, c) })
}

func numbersShareASlot(t *testing.T, c *redistest.Cluster) {
	rdb := openCluster(t, c)
	for _, prefix := range []string{"", "{app}:", "p{q}r"} {
		for i, name := range []string{"a", "orders:42", "{user7}:mail", "x{y}z{w}"} {
			client := newScope(t).open(t, rdb, lock.WithKeyPrefix(prefix))
			ctx, slot := t.Context(), c.Slot(t, prefix+name)
			must(t, "Release", client.UnleasedSemaphore(name).Release(ctx, 2))
			must(t, "Acquire", client.UnleasedSemaphore(name).Acquire(ctx, 1))
			l := try(t, client.Semaphore(name))
			keys, err := c.Owner(t, slot).Client(t).ClusterGetKeysInSlot(ctx, slot, 100).Result()
			must(t, "keys", err)
			total := int64(0)
			for _, n := range c.Nodes {
				total += n.Client(t).DBSize(ctx).Val()
			}
			// The number, the permits, the token counter, and a receipt.
			if total != 4 || len(keys) != 4 || !slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(k, ":lockdog_receipt:") }) {
				t.Errorf("%q %d: the slot has %q, the cluster %d keys", prefix, i, keys, total)
			}
			free(t, l)
			for _, k := range keys {
				rdb.Del(ctx, k)
			}
		}
	}
}

// The first operation of a client must be heard, too: it knows how to publish before.
func wokenInACluster(t *testing.T, c *redistest.Cluster) {
	ctx := t.Context()
	for _, name := range []string{"pool", "{tag}pool"} {
		s := newScope(t)
		waiter := s.open(t, openCluster(t, c), lock.WithWatchdog(time.Hour))
		node := c.Owner(t, c.Slot(t, name))
		bare := acquiring(ctx, waiter.UnleasedSemaphore(name), 1)
		waiting(t, waiter, 1)
		eventually(t, patience, func() bool { return len(shardChannels(t, node)) == 1 })
		asleep(t, waiter, 1) // it asks once more when subscribed
		must(t, "Release", newScope(t).open(t, openCluster(t, c)).UnleasedSemaphore(name).Release(ctx, 1))
		must(t, "Acquire", await(t, "Acquire", bare))

		leased := begin(ctx, waiter.Semaphore(name))
		waiting(t, waiter, 1)
		eventually(t, patience, func() bool { return len(shardChannels(t, node)) == 1 })
		asleep(t, waiter, 1)
		must(t, "AddPermits", newScope(t).open(t, openCluster(t, c)).Semaphore(name).AddPermits(ctx, 1))
		free(t, granted(t, leased))
		if n := s.sum(t, telemetry.MetricWakeups, "lockdog.wakeup.source=message"); n < 2 {
			t.Errorf("wake-ups: %v", s.series(t, telemetry.MetricWakeups))
		}
	}
	waiter := newScope(t).open(t, openCluster(t, c), lock.WithWatchdog(time.Hour))
	closed(t, newScope(t).open(t, openCluster(t, c)), "gate", 1)
	opened := awaiting(ctx, waiter.Latch("gate"))
	waiting(t, waiter, 1)
	eventually(t, patience, func() bool { return len(shardChannels(t, c.Owner(t, c.Slot(t, "gate")))) == 1 })
	start := time.Now()
	must(t, "CountDown", newScope(t).open(t, openCluster(t, c)).Latch("gate").CountDown(ctx))
	must(t, "Wait", await(t, "Wait", opened))
	if took := time.Since(start); took > 5*time.Second { // else it was the net
		t.Errorf("woken after %v", took)
	}
}

// While a slot moves, a script with several of its keys is refused; what was given is there when it has moved, leases are kept
// alive, and waiters get in.
func numbersMove(t *testing.T, c *redistest.Cluster) {
	ctx := t.Context()
	const lease = steady
	client := newScope(t).open(t, openCluster(t, c), lock.WithWatchdog(lease))
	waiter := newScope(t).open(t, openCluster(t, c), lock.WithWatchdog(10*time.Second)) // has patience for so long
	p := permits(t, client, "{moving}leased", 1)
	l := try(t, p)
	must(t, "Release", client.UnleasedSemaphore("{moving}bare").Release(ctx, 1))
	must(t, "Acquire", client.UnleasedSemaphore("{moving}bare").Acquire(ctx, 1))
	bare, leased := acquiring(ctx, waiter.UnleasedSemaphore("{moving}bare"), 1), begin(ctx, waiter.Semaphore("{moving}leased"))
	waiting(t, waiter, 2)

	slot := c.Slot(t, "{moving}")
	m := c.Migrate(t, slot, otherNode(t, c, slot))
	m.MoveKeys(t, "{moving}bare", "{moving}leased:timeout")
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := client.UnleasedSemaphore("{moving}bare").Release(short, 1); err == nil {
		t.Error("Release while the slot moves: no error")
	}
	since := time.Now()
	renewedPast(t, l, since.Add(lease)) // by a call that was made since
	must(t, "the lease", l.Err())
	m.Finish(t)
	must(t, "Acquire", await(t, "Acquire", bare))
	must(t, "the lease", l.Err())
	free(t, l)
	free(t, granted(t, leased))
	pass(t, 100*time.Millisecond)
	mustBe(t, "bare permits", available(t, client.UnleasedSemaphore("{moving}bare")), 0)
	mustBe(t, "permits with leases", available(t, p), 1)
}

// Redisson's channel of such a latch is in another slot.
func latchWithATag(t *testing.T, c *redistest.Cluster) {
	ctx := t.Context()
	client := newScope(t).open(t, openCluster(t, c))
	tagged := client.Latch("{tag}gate")
	for what, err := range map[string]error{
		"TrySetCount": second(tagged.TrySetCount(ctx, 1)), "CountDown": tagged.CountDown(ctx), "Wait": tagged.Wait(ctx),
	} {
		mustMatch(t, err, lock.ErrInvalid)
		if !strings.Contains(err.Error(), "without braces") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, n := range c.Nodes {
		if size := n.Client(t).Exists(ctx, "{tag}gate").Val(); size != 0 {
			t.Error("it was set all the same")
		}
	}
	d := newDeskAt(t, redistest.Shared(t)) // on one server it is well
	single := d.client()
	l := closed(t, single, "{tag}gate", 1)
	opened := awaiting(ctx, l)
	waiting(t, single, 1)
	must(t, "CountDown", l.CountDown(ctx))
	must(t, "Wait", await(t, "Wait", opened))
}

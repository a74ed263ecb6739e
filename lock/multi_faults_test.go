package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

var both = []string{"a", "b"}

// If Redis refuses one name of a Multi, because of its key's type or the user's ACL, no name is granted, and nothing is
// left in Redis.
func TestMultiUndoesWhatIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t)
		c := newScope(t).open(t, rdb)
		rdb.LPush(t.Context(), "b", "x")
		_, err := c.Multi(both).TryLock(t.Context())
		mustMatch(t, err, lock.ErrInvalid)
		rdb.Del(t.Context(), "b")
		srv.SetRefusal(refuseAny([]string{"PEXPIRE"}, "NOPERM this user has no permissions to run the 'pexpire' command"))
		mustMention(t, errorOf(c.Multi(both).TryLock(t.Context())), "a", "NOPERM")
		srv.SetRefusal(nil)
		if n := rdb.Exists(t.Context(), "a", "b").Val(); n != 0 {
			t.Errorf("%d are held", n)
		}

		// At the release one bad key doesn't keep the other.
		l := try(t, c.Multi(both, lock.WithFixedLease(far)))
		rdb.Del(t.Context(), "a")
		rdb.LPush(t.Context(), "a", "x")
		mustMention(t, l.Release(t.Context()), "a", `its key "a"`)
		l = try(t, c.Multi([]string{"c", "d"}, lock.WithFixedLease(far)))
		rdb.HDel(t.Context(), "c", l.Owner())
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
		mustMatch(t, l.Err(), lock.ErrLost)
		if n := rdb.Exists(t.Context(), "b", "d").Val(); n != 0 {
			t.Errorf("%d of the others are still held", n)
		}
	})
}

// atAcquire is a span processor that calls a function when the span of an acquire ends.
type atAcquire func()

func (f atAcquire) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (f atAcquire) OnEnd(s sdktrace.ReadOnlySpan) {
	if strings.HasPrefix(s.Name(), "acquire") {
		f()
	}
}
func (f atAcquire) Shutdown(context.Context) error   { return nil }
func (f atAcquire) ForceFlush(context.Context) error { return nil }

// A ctx that ends when the script has granted all locks, and only some are the Multi's, leaves nothing behind.
func TestMultiCanceledAsItIsGranted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		ctx, cancel := context.WithCancel(t.Context())
		c := open(t, srv.Client(t), lock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(atAcquire(func() {
			cancel()
			time.Sleep(time.Millisecond) // until the first lock has noticed
		})))))
		l, err := c.Multi([]string{"a", "b", "c", "d"}).Lock(ctx)
		if err == nil {
			free(t, l)
		}
		time.Sleep(5 * time.Second)
		if n := len(c.Leases()); n > 0 {
			t.Errorf("Lock: %v; %d leases are left", err, n)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			if holderOf(srv.Client(t), name) != "" {
				t.Errorf("Lock: %v; %s is still held", err, name)
			}
		}
	})
}

// slots is how many slots the keys of an EVALSHA are in.
func slots(args []any) int {
	n, seen := 0, map[int]bool{}
	_, _ = fmt.Sscan(fmt.Sprint(args[2]), &n)
	for _, key := range args[3 : 3+n] {
		seen[hashslot.Of(fmt.Sprint(key))] = true
	}
	return len(seen)
}

// Where a proxy wants one slot, the names are taken one by one, and the script isn't tried again.
func TestMultiBehindAFussyProxy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb := sp.Client(t)
		var refused atomic.Int32
		rdb.AddHook(fakeredis.Tap{Up: func(cmd redis.Cmder) error { // a proxy that wants all keys in one slot
			if isEval(cmd) && slots(cmd.Args()) > 1 {
				refused.Add(1)
				return crossSlot{}
			}
			return nil
		}})
		s := newScope(t)
		c := s.open(t, rdb, lock.WithKeyPrefix(sp.Prefix()))
		for range 2 {
			free(t, try(t, c.Multi([]string{"a", "b", "c"})))
			if n := refused.Load(); n != 1 {
				t.Errorf("%d calls were refused, want 1", n)
			}
		}
		// Refused beside two that are free, TryLock has none.
		if err := rdb.HSet(t.Context(), sp.Prefix()+"c", somebodyElse, 1).Err(); err != nil {
			t.Fatal(err)
		}
		_, err := c.Multi([]string{"a", "b", "c"}).TryLock(t.Context())
		mustMatch(t, err, lock.ErrHeld)
		if n := rdb.Exists(t.Context(), sp.Prefix()+"a", sp.Prefix()+"b").Val(); n != 0 {
			t.Errorf("it keeps %d locks", n)
		}
		if n := s.sum(t, telemetry.MetricErrors); n != 0 {
			t.Errorf("%v errors are counted", n)
		}
	})
}

// In a cluster names of one tag go together, others one by one; and so do those of one slot while it moves.
func TestMultiInCluster(t *testing.T) {
	t.Parallel()
	cl := redistest.StartCluster(t, 0)
	s := newScope(t)
	const lease = 12 * time.Second
	c := s.open(t, openCluster(t, cl), lock.WithLease(lease))
	other := newScope(t).open(t, openCluster(t, cl), lock.WithLease(lease))
	calls := func(names ...string) (acquire, release int) {
		t.Helper()
		free(t, try(t, c.Multi(names)))
		for _, name := range names { // every node knows the script of one release: several at once may have gone without it
			free(t, try(t, c.Mutex(name)))
		}
		a, r := s.sent(t, telemetry.PurposeAcquire), s.sent(t, telemetry.PurposeRelease)
		l := try(t, c.Multi(names))
		free(t, l)
		return s.sent(t, telemetry.PurposeAcquire) - a, s.sent(t, telemetry.PurposeRelease) - r
	}
	if a, r := calls("{x}1", "{x}2", "{x}3"); a != 1 || r != 1 {
		t.Errorf("one tag: %d calls to acquire, %d to release", a, r)
	}
	var apart []string
	for _, n := range cl.Nodes {
		apart = append(apart, namesOn(t, cl, n, 1)...)
	}
	if a, r := calls(apart...); a != 3 || r != 3 {
		t.Errorf("a name on each node: %d calls to acquire, %d to release", a, r)
	}
	if a, r := calls(namesOn(t, cl, cl.Nodes[0], 4)...); a != 4 || r < 1 || r > 4 { // they are released at once, and may meet on their way
		t.Errorf("no tag, one node: %d calls to acquire, %d to release", a, r)
	}
	held := try(t, c.Multi([]string{"{x}1", "{x}2", "{x}3"}))
	at := cl.Slot(t, "{x}")
	m := cl.Migrate(t, at, otherNode(t, cl, at))
	m.MoveKeys(t, "{x}2")
	moved := time.Now()
	_, err := other.Multi([]string{"{x}2", "{x}4"}).TryLock(t.Context())
	mustMatch(t, err, lock.ErrHeld)
	renewedPast(t, held, moved.Add(lease)) // by a call that was made since
	fresh := try(t, c.Multi([]string{"{x}5", "{x}6"}))
	if held.Err() != nil || fresh.Token() == 0 {
		t.Errorf("while the slot moves: %v, token %d", held.Err(), fresh.Token())
	}
	free(t, held)
	m.Finish(t)
	free(t, fresh)
	if a, r := calls("{x}1", "{x}2"); a != 1 || r != 1 {
		t.Errorf("after the slot has moved: %d calls to acquire, %d to release", a, r)
	}
}

// A waiter in this process is handed its name when a Multi releases it, and a Multi that waits is handed its own.
func TestMultiHandsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCorner(t)
		a, s := c.client(lock.WithLease(far))
		l := try(t, a.Multi(both))
		next := begin(t.Context(), a.Mutex("b"))
		asleep(t, a, 1)
		asked := s.sent(t, telemetry.PurposeAcquire)
		free(t, l)
		one := granted(t, next)
		if n := s.sent(t, telemetry.PurposeAcquire); n != asked {
			t.Errorf("%d calls to acquire what a Multi handed over", n-asked)
		}
		after := begin(t.Context(), a.Multi(both))
		asleep(t, a, 1)
		acquires := s.sent(t, telemetry.PurposeAcquire)
		free(t, one)
		free(t, granted(t, after))
		if n := s.sent(t, telemetry.PurposeAcquire); n != acquires {
			t.Errorf("%d calls to acquire what was handed over", n-acquires)
		}
	})
}

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// brief is a short lease, or a part of one. Who has to hold a lock while others do something needs more: steady, or far.
const (
	brief  = 450 * time.Millisecond
	steady = 2400 * time.Millisecond
)

// corner is a fake server, whose clients have leases of the length steady and telemetry that the test reads.
type corner struct {
	t     *testing.T
	space *redistest.Fake
	rdb   *redis.Client
}

func newCorner(t *testing.T) *corner {
	sp := redistest.StartFake(t)
	return &corner{t, sp, sp.Client(t)}
}

func (c *corner) client(opts ...lock.Option) (*lock.Client, *scope) {
	s := newScope(c.t)
	opts = append([]lock.Option{lock.WithKeyPrefix(c.space.Prefix()), lock.WithLease(steady)}, opts...)
	return s.open(c.t, c.rdb, opts...), s
}

func (c *corner) key(name string) string { return c.space.Prefix() + name }

func (c *corner) exists(name string) bool {
	return c.rdb.Exists(context.Background(), c.key(name)).Val() == 1
}

// hold has somebody else hold a lock.
func (c *corner) hold(name string) {
	c.t.Helper()
	if err := c.rdb.HSet(context.Background(), c.key(name), somebodyElse, 1).Err(); err != nil {
		c.t.Fatal(err)
	}
}

func TestMultiTakesAllOrNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCorner(t)
		a, _ := c.client()
		b, _ := c.client()

		names := []string{"y", "z", "x"}
		l := try(t, a.Multi(names))
		if l.Name() != "x,y,z" || names[0] != "y" {
			t.Errorf("it is called %q; the caller's names are %v", l.Name(), names)
		}
		tokens := l.Tokens()
		if len(tokens) != 3 || l.Token() != max(tokens["x"], tokens["y"], tokens["z"]) {
			t.Errorf("token %d, tokens %v", l.Token(), tokens)
		}
		owners := map[string]bool{}
		for _, name := range []string{"x", "y", "z"} {
			h, err := b.Mutex(name).Inspect(t.Context())
			if err != nil || !h.Held || h.Token != tokens[name] || h.Token == 0 || h.Remaining <= 0 {
				t.Errorf("%s: %+v, %v; its token is %d", name, h, err, tokens[name])
			}
			owners[h.Owner] = true
			var held *lock.HeldError
			if _, err := b.Mutex(name).TryLock(t.Context()); !errors.As(err, &held) || held.Name != name || held.Owner != h.Owner {
				t.Errorf("a Mutex beside it: %v", err)
			}
		}
		if len(owners) != 3 || !owners[l.Owner()] {
			t.Errorf("owners %v, the lease's is %q", owners, l.Owner())
		}
		var held *lock.HeldError
		if _, err := b.Multi([]string{"w", "y"}).TryLock(t.Context()); !errors.As(err, &held) || held.Name != "y" || !owners[held.Owner] || held.Remaining <= 0 {
			t.Errorf("another Multi: %v", err)
		}
		if c.exists("w") {
			t.Error("it kept what it got")
		}
		free(t, l)
		for _, name := range names {
			if c.exists(name) {
				t.Errorf("%s is still held", name)
			}
		}
	})
}

// One script takes all, and one gives them back, whatever their number.
func TestMultiTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		s := newScope(t)
		c := s.open(t, sp.Client(t), lock.WithKeyPrefix(sp.Prefix()))
		free(t, try(t, c.Mutex("warm"))) // the connection is there

		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprint("job:", i))
		}
		free(t, try(t, c.Multi(names))) // Redis knows the scripts
		for range 2 {
			acquire, release := s.sent(t, telemetry.PurposeAcquire), s.sent(t, telemetry.PurposeRelease)
			l := try(t, c.Multi(names))
			free(t, l)
			if a, r := s.sent(t, telemetry.PurposeAcquire)-acquire, s.sent(t, telemetry.PurposeRelease)-release; a != 1 || r != 1 {
				t.Errorf("%d calls to acquire, %d to release", a, r)
			}
		}
		if left := sp.Keys(t); slices.ContainsFunc(left, func(k string) bool { return strings.Contains(k, "job:") }) {
			t.Errorf("left: %v", left)
		}
	})
}

// Names that share a slot, and so a counter, have a token each.
func TestMultiTokensOfOneSlotDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCorner(t)
		a, _ := c.client()
		m := a.Multi([]string{"{job}:a", "{job}:b", "{job}:c"})
		last := int64(0)
		for range 3 {
			l := try(t, m)
			for _, name := range []string{"{job}:a", "{job}:b", "{job}:c"} {
				if token := l.Tokens()[name]; token <= last {
					t.Errorf("%s: token %d after %d", name, token, last)
				} else {
					last = token
				}
			}
			if l.Token() != last {
				t.Errorf("the token is %d, the largest of its names %d", l.Token(), last)
			}
			free(t, l)
		}
	})
}

// Lock holds what comes before the name that it waits for, and renews it.
func TestMultiWaitsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCorner(t)
		a, as := c.client()
		b, _ := c.client()
		held := try(t, b.Mutex("b"))
		next := begin(t.Context(), a.Multi([]string{"c", "b", "a"}))
		waiting(t, a, 1)
		eventually(t, patience, func() bool { return c.exists("a") })
		eventually(t, patience, func() bool { return as.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") >= 2 })
		if c.exists("c") {
			t.Error("it took what comes after the one that it waits for")
		}
		infos := a.Leases()
		slices.SortFunc(infos, func(a, b lock.LeaseInfo) int { return strings.Compare(a.Name, b.Name) })
		if len(infos) != 2 || infos[0].Name != "a" || infos[0].State != lock.StateHeld || infos[1].Name != "b" || infos[1].WaitsFor != held.Owner() {
			t.Errorf("%+v", infos)
		}
		free(t, held)
		l := granted(t, next)
		for _, name := range []string{"a", "b", "c"} {
			if !c.exists(name) {
				t.Errorf("%s isn't held", name)
			}
		}
		free(t, l)
	})
}

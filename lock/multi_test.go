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

// corner is a corner of the shared server, with clients that tell all they do; their leases are steady.
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
		a, as := c.client()
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
		for _, info := range a.Leases() {
			if info.Kind != "multi" || tokens[info.Name] != info.Token {
				t.Errorf("%+v", info)
			}
		}
		var held *lock.HeldError
		if _, err := b.Multi([]string{"w", "y"}).TryLock(t.Context()); !errors.As(err, &held) || held.Name != "y" || !owners[held.Owner] || held.Remaining <= 0 {
			t.Errorf("another Multi: %v", err)
		}
		if c.exists("w") {
			t.Error("it kept what it got")
		}
		free(t, l)
		mustMatch(t, l.Err(), lock.ErrReleased)
		mustMatch(t, context.Cause(l.Context()), lock.ErrReleased)
		mustMatch(t, l.Release(t.Context()), lock.ErrReleased)
		await(t, "Done", l.Ended())
		next := try(t, b.Multi([]string{"x", "z"}))
		for name, token := range next.Tokens() {
			if token <= tokens[name] {
				t.Errorf("%s: token %d after %d", name, token, tokens[name])
			}
		}
		free(t, next)
		for _, name := range []string{"x", "y", "z"} {
			if c.exists(name) {
				t.Errorf("%s is still held", name)
			}
		}
		if got := as.sum(t, telemetry.MetricAcquisitions, "lockdog.outcome=acquired"); got != 1 {
			t.Errorf("%v acquisitions, want one for all names", got)
		}
	})
}

// One script takes all, and one gives them back, whatever their number.
func TestMultiTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb, e := throughProxy(t, sp)
		s := newScope(t)
		c := s.open(t, rdb, lock.WithKeyPrefix(sp.Prefix()))
		free(t, try(t, c.Mutex("warm"))) // the connection is there

		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprint("job:", i))
		}
		free(t, try(t, c.Multi(names))) // Redis knows the scripts
		for range 2 {
			acquire, release := s.sent(t, telemetry.PurposeAcquire), s.sent(t, telemetry.PurposeRelease)
			l := try(t, c.Multi(names))
			seen := map[int64]bool{}
			for _, token := range l.Tokens() {
				seen[token] = true
			}
			if len(seen) == 0 || len(l.Tokens()) != len(names) {
				t.Errorf("tokens %v", l.Tokens())
			}
			free(t, l)
			if a, r := s.sent(t, telemetry.PurposeAcquire)-acquire, s.sent(t, telemetry.PurposeRelease)-release; a != 1 || r != 1 {
				t.Errorf("%d calls to acquire, %d to release", a, r)
			}
		}
		if n := e.heard("acquire", sp.Prefix()+"job:"); n != 0 {
			t.Errorf("%d names were taken by themselves", n)
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

func TestMultiDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCorner(t)
		a, _ := c.client()
		why := errors.New("why")
		err := a.Multi([]string{"a", "b"}).Do(t.Context(), func(ctx context.Context, l *lock.Lease) error {
			if l.Name() != "a,b" || !c.exists("a") || !c.exists("b") {
				t.Error("it isn't held")
			}
			c.rdb.Del(ctx, c.key("a"))
			<-ctx.Done()
			return why
		})
		mustMatch(t, err, why, lock.ErrLost)
		if c.exists("b") {
			t.Error("b is still held")
		}
	})
}

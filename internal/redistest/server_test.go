package redistest_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// once makes a client try everything once, with patience.
func once(o *redis.Options) {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ReadTimeout = time.Minute
}

func TestConfig(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t,
		redistest.WithPassword(`p"w #1`),
		redistest.WithConfig("maxmemory", "3mb"),
		redistest.WithUser("app", "on", ">secret", "~app:*", "&*", "+@all", "-publish"),
	)
	if !strings.HasPrefix(s.Addr(), "127.0.0.1:") {
		t.Errorf("Addr = %s, want loopback", s.Addr())
	}
	ctx := t.Context()
	if got, err := s.Client(t).ConfigGet(ctx, "maxmemory").Result(); err != nil || got["maxmemory"] != "3145728" {
		t.Errorf("maxmemory = %v, %v", got, err)
	}
	nobody := s.Client(t, func(o *redis.Options) { o.Password = "" })
	if err := nobody.Ping(ctx).Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without password: %v, want NOAUTH", err)
	}
	app := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	if err := app.Set(ctx, "app:k", "v", 0).Err(); err != nil {
		t.Errorf("user app: %v", err)
	}
	if err := app.Publish(ctx, "c", "m").Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("PUBLISH of user app: %v, want NOPERM", err)
	}
}

func TestBadConfigSaysWhy(t *testing.T) {
	t.Parallel()
	f := &fatalTB{TB: t}
	f.run(func() { redistest.Start(f, redistest.WithConfig("maxmemory-policy", "nonsense")) })
	if !strings.Contains(f.message, "did not start") {
		t.Errorf("failure = %q", f.message)
	}
}

func TestMissingBinary(t *testing.T) {
	t.Setenv("LOCKDOG_REDIS_SERVER", "no-such-redis-server")
	f := &fatalTB{TB: t}
	f.run(func() { redistest.Start(f) })
	if !strings.Contains(f.message, "apt-get install -y redis-server") {
		t.Errorf("failure = %q", f.message)
	}
	if _, _, err := redistest.Launch(false); err == nil {
		t.Error("Launch: no error")
	}
}

func TestCommandsCountsOnlyTheTests(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if got := s.Commands(t); got.Total() != 0 {
		t.Errorf("fresh server executed %v", got)
	}
	rdb := s.Client(t)
	ctx := t.Context()
	if err := rdb.Ping(ctx).Err(); err != nil { // connected; the greeting is done
		t.Fatal(err)
	}
	check := func(before redistest.Commands, want redistest.Commands) {
		t.Helper()
		if got := s.Commands(t).Since(before); !maps.Equal(got, want) {
			t.Errorf("executed %v, want %v", got, want)
		}
	}
	before := s.Commands(t)
	check(before, redistest.Commands{})
	for range 3 {
		if err := rdb.Eval(ctx, "redis.call('SET', KEYS[1], 1) return redis.call('INCR', KEYS[1])", []string{"k"}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := rdb.Info(ctx).Err(); err != nil { // the test's own INFO counts
		t.Fatal(err)
	}
	check(before, redistest.Commands{"eval": 3, "set": 3, "incr": 3, "info": 1})
	s.Restart(t, redistest.LoseData)
	if got := s.Commands(t); got["eval"] != 0 || got["info"] != 0 {
		t.Errorf("after a restart: %v", got)
	}
}

// A space has its keys for itself, on a server that all share, and they go with its test.
func TestShared(t *testing.T) {
	t.Parallel()
	outer := redistest.Shared(t)
	var inner redistest.Space
	t.Run("inner", func(t *testing.T) {
		inner = redistest.Shared(t)
		key := inner.Prefix() + "k"
		if err := inner.Client(t).Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if keys := inner.Keys(t); !slices.Equal(keys, []string{key}) {
			t.Errorf("keys = %v, want %s", keys, key)
		}
		if keys := outer.Keys(t); outer.Addr() != inner.Addr() || outer.Prefix() == inner.Prefix() || len(keys) != 0 {
			t.Errorf("another space, %q at %s, has %v; this is %q at %s",
				outer.Prefix(), outer.Addr(), keys, inner.Prefix(), inner.Addr())
		}
	})
	if keys := inner.Keys(t); len(keys) != 0 {
		t.Errorf("left behind: %v", keys)
	}
}

// fatalTB stands in for a test that is expected to fail.
type fatalTB struct {
	testing.TB
	message string
}

func (f *fatalTB) Fatal(args ...any) {
	f.message = fmt.Sprint(args...)
	runtime.Goexit()
}

// run gives fn a goroutine of its own to end.
func (f *fatalTB) run(fn func()) {
	var wg sync.WaitGroup
	wg.Go(fn)
	wg.Wait()
}

package redistest_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// inFakeTime runs a test in a bubble, over a fake server.
func inFakeTime(t *testing.T, test func(t *testing.T, f *redistest.Fake)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, redistest.StartFake(t)) })
}

// answerWithin is a client that waits for d.
func answerWithin(d time.Duration) func(*redis.Options) {
	return func(o *redis.Options) { o.ReadTimeout = d }
}

func TestFakeHasTheBubblesClock(t *testing.T) {
	inFakeTime(t, func(t *testing.T, f *redistest.Fake) {
		rdb, ctx := f.Client(t), t.Context()
		if err := rdb.Set(ctx, "k", 1, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		if left := rdb.PTTL(ctx, "k").Val(); left != time.Minute {
			t.Errorf("the key lasts for another %v, want a minute", left)
		}
		time.Sleep(time.Minute)
		if n := rdb.Exists(ctx, "k").Val(); n != 0 {
			t.Error("the key has outlived its time")
		}
		if at := rdb.Time(ctx).Val(); !at.Equal(time.Now()) {
			t.Errorf("TIME says %v, the bubble %v", at, time.Now())
		}
	})
}

func TestFakeCountsCommandsOfScripts(t *testing.T) {
	inFakeTime(t, func(t *testing.T, f *redistest.Fake) {
		before := f.Commands(t)
		if err := f.Client(t).Eval(t.Context(), "return redis.call('get', KEYS[1])", []string{"k"}).Err(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		if sent := f.Commands(t).Since(before); sent["eval"] != 1 || sent["get"] != 1 {
			t.Errorf("it has counted %v", sent)
		}
	})
}

// With the race detector, a program ends whose bubble has two timers that are due at once: golang.org/issue/78156.
func TestFakeIsDialedByManyAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T, f *redistest.Fake) {
		const crowd = 500
		rdb := f.Client(t)
		f.Pause(t) // so that nobody is done with a connection that the next could use
		var wg sync.WaitGroup
		for range crowd {
			wg.Go(func() {
				if err := rdb.Ping(t.Context()).Err(); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		f.Resume(t)
		wg.Wait()
		if n := f.Commands(t)["hello"]; n != crowd {
			t.Errorf("there were %d connections, want %d", n, crowd)
		}
	})
}

// Neither end reads while it writes.
func TestFakeTakesLongBatches(t *testing.T) {
	inFakeTime(t, func(t *testing.T, f *redistest.Fake) {
		long := strings.Repeat("x", 1<<10)
		replies, err := f.Client(t).Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 2000 {
				p.Echo(t.Context(), long)
			}
			return nil
		})
		if err != nil || len(replies) != 2000 {
			t.Errorf("got %d replies, %v", len(replies), err)
		}
	})
}

// What proxies do to TCP they do to pipes.
func TestFakeBehindAProxy(t *testing.T) {
	inFakeTime(t, func(t *testing.T, f *redistest.Fake) {
		p, ctx := redistest.NewProxy(t, f.Addr()), t.Context()
		rdb := f.Client(t, answerWithin(time.Second), func(o *redis.Options) { o.Addr = p.Addr() })
		asked := redistest.Contains("incr")
		for _, tt := range []struct {
			what  string
			rule  redistest.Rule
			fails bool
			took  time.Duration // in fake time
			done  bool          // by the server
		}{
			{"passes", nil, false, 0, true},
			{"is late", redistest.When(redistest.Up, redistest.Delay(300*time.Millisecond), asked), false, 300 * time.Millisecond, true},
			{"is dropped", redistest.When(redistest.Up, redistest.Drop, asked), true, time.Second, false},
			{"is answered, and the answer dropped", redistest.ReplyTo(redistest.Drop, asked), true, time.Second, true},
			{"is cut in half", redistest.When(redistest.Up, redistest.Truncate(8), asked), true, 0, false},
			{"is cut", redistest.When(redistest.Up, redistest.Cut, asked), true, 0, false},
			{"is answered, and the answer cut", redistest.ReplyTo(redistest.Truncate(2), asked), true, 0, true},
		} {
			f.Client(t).Set(ctx, "n", 0, 0)
			p.SetRule(tt.rule)
			start := time.Now()
			err := rdb.Incr(ctx, "n").Err()
			p.SetRule(nil)
			if took := time.Since(start); (err != nil) != tt.fails || took != tt.took {
				t.Errorf("a request that %s: %v after %v; want an error: %v, after %v", tt.what, err, took, tt.fails, tt.took)
			}
			if done := f.Client(t).Get(ctx, "n").Val() == "1"; done != tt.done {
				t.Errorf("a request that %s was done: %v", tt.what, done)
			}
		}
	})
}

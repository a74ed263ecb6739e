package lock_test

import (
	"context"
	"errors"
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

// appACL is what a program's Redis user needs to take locks whose names start with "job", in the order keys, channels,
// commands sent, commands in scripts. (HELLO, AUTH and the like are free to all.)
const appACL = "~job* ~lockdog:fence:* &redisson_lock__channel:* &lockdog:control:* " +
	"+evalsha +eval +subscribe +unsubscribe +ping " +
	"+time +hgetall +hexists +hset +hkeys +pttl +pexpire +get +set +exists +del +publish +pubsub|numsub"

// The README says the same.
func TestREADMEListsTheACL(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(strings.Fields(string(readme)), " "), appACL) {
		t.Errorf("README.md doesn't list %s", appACL)
	}
}

// The rules are enough for every call, and none can be left out.
func TestACL(t *testing.T) {
	t.Parallel()
	t.Run("all rules", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t, app()...)
		if err := everyCall(t, srv); err != nil {
			t.Errorf("a user with %q: %v", appACL, err)
		}
	})
	rules := strings.Fields(appACL)
	for i, rule := range rules {
		if rule == "+ping" { // sent over a subscription that was silent for 3 s only: TestSilentSubscription
			continue
		}
		t.Run("without "+rule, func(t *testing.T) {
			t.Parallel()
			fewer := append([]string{"on", ">" + appPassword}, slices.Delete(slices.Clone(rules), i, i+1)...)
			srv := redistest.Start(t, redistest.WithUser("app", fewer...))
			if err := everyCall(t, srv); err == nil {
				t.Error("nobody missed it")
			}
		})
	}
}

// everyCall does all that a program does with locks, as the restricted user, beside a client that may do everything. It
// returns what was refused.
func everyCall(t *testing.T, srv *redistest.Server) error {
	t.Helper()
	s := newScope(t)
	admin := srv.Client(t)
	c := s.open(t, srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", appPassword }), lock.WithWatchdog(900*time.Millisecond))
	other := newScope(t).open(t, admin)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var failed error
	step := func(what string, err error) bool {
		if n := s.series(t, telemetry.MetricErrors); err == nil && len(n) > 0 {
			err = fmt.Errorf("errors counted: %v", n)
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", what, err)
		}
		return failed == nil
	}
	until := func(what string, cond func() bool) bool {
		for !cond() {
			if len(s.series(t, telemetry.MetricErrors)) > 0 || ctx.Err() != nil {
				return step(what, fmt.Errorf("not so; errors counted: %v", s.series(t, telemetry.MetricErrors)))
			}
			<-time.After(5 * time.Millisecond)
		}
		return true
	}
	m := c.Mutex("job:1")
	channel := "redisson_lock__channel:{job:1}"
	listening := func() bool { return admin.PubSubNumSub(ctx, channel).Val()[channel] > 0 }

	l, err := m.TryLock(ctx)
	if !step("TryLock", err) {
		return failed
	}
	start := l.Deadline()
	until("renewal", func() bool { return l.Deadline().After(start) })
	if _, err = m.TryLock(ctx); !errors.Is(err, lock.ErrHeld) {
		step("TryLock of a held lock", fmt.Errorf("%w, want ErrHeld", err))
	}
	asked := s.sent(t, telemetry.PurposeAcquire)
	heir := begin(ctx, m)
	if !until("the heir", func() bool { return s.sent(t, telemetry.PurposeAcquire) == asked+2 }) { // again when subscribed
		return failed
	}
	for range 3 { // by then it has its answer, and sleeps
		_, err = m.Inspect(ctx)
		step("Inspect", err)
	}
	if !step("hand-over", l.Release(ctx)) {
		return failed
	}
	got := <-heir
	if !step("the heir", got.err) || !until("unsubscribed", func() bool { return !listening() }) {
		return failed
	}
	stranger := begin(ctx, other.Mutex("job:1"))
	if !until("the stranger", listening) || !step("Release", got.Release(ctx)) {
		return failed
	}
	got = <-stranger
	if !step("the stranger", got.err) {
		return failed
	}
	_, err = m.ForceUnlock(ctx)
	step("ForceUnlock", err)
	until("the stranger's loss", func() bool { return got.Err() != nil })

	l, err = c.Mutex("job:3").TryLock(ctx)
	if !step("TryLock", err) {
		return failed
	}
	admin.Del(ctx, "job:3")
	if err := l.Release(ctx); !errors.Is(err, lock.ErrLost) {
		step("Release of a lost lock", fmt.Errorf("%w, want ErrLost", err))
	}

	l, err = c.Mutex("job:2", lock.WithWatchdog(time.Minute)).TryLock(ctx)
	if !step("TryLock", err) {
		return failed
	}
	until("the control channel", func() bool { return len(admin.PubSubChannels(ctx, "lockdog:control:*").Val()) == 2 })
	_, err = other.Mutex("job:2").ForceUnlock(ctx)
	step("the other's ForceUnlock", err)
	until("our loss", func() bool { return l.Err() != nil })
	return failed
}

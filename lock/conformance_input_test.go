package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
)

var inputBehaviours = []behaviour{
	{name: "bad input/names and options of a lock", test: badLocks},
	{name: "bad input/options of a client", test: badClients},
	{name: "bad input/a key of another type", test: keyOfAnotherType},
	{name: "bad input/nil", test: nils},
	{name: "good input/names", test: goodNames},
}

// badLock is a lock that can't be, and what the error has to say.
type badLock struct {
	name string
	opts []lock.LockOption
	says []string
}

var badNameTable = []badLock{
	{name: "", says: []string{"name is empty"}},
	{name: strings.Repeat("n", 1100), says: []string{"nnnnnnnn", "1024"}},
	{name: "\xff\xfe", says: []string{`\xff\xfe`, "UTF-8"}},
	{name: "a{b", says: []string{"a{b", "{tag}"}},
	{name: "a}b", says: []string{"a}b", "{tag}"}},
	{name: "{}", says: []string{"{}", "{tag}"}},
	{name: "}{", says: []string{"}{", "{tag}"}},
	reserved("lockdog:fence:{27923}", "lockdog:fence:"),
	reserved("app:lockdog:fence:{0}", "lockdog:fence:"), // of a client with another prefix
	reserved("lockdog_wait:{job}", "lockdog_wait:"),
	reserved("lockdog_fair:{job}", "lockdog_fair:"),
	reserved("lockdog:waits:{x}", "lockdog:waits:"),
	reserved("a:lockdog:waiting", "lockdog:waiting"),
	reserved("redisson_lock_queue:{job}", "redisson_lock_queue:"),
	reserved("redisson_lock_timeout:{job}", "redisson_lock_timeout:"),
	reserved("redisson_lock_token:{job}", "redisson_lock_token:"),
	reserved("redisson_unlock_latch:{job}:0", "redisson_unlock_latch:"),
	reserved("{job}:lockdog_writers", ":lockdog_writers"),
	reserved("{job}:lockdog_turn", ":lockdog_turn"),
	reserved("{job}:lockdog_receipt:app:1", ":lockdog_receipt:"),
	reserved("{job}:app:1:rwlock_timeout:1", ":rwlock_timeout:"),
}

var badLockTable = slices.Concat(badNameTable, []badLock{
	with(lock.WithLease(99*time.Millisecond)).saying("99ms", "100ms to 8760h"),
	with(lock.WithLease(0)).saying("0s", "100ms to 8760h"),
	with(lock.WithLease(-time.Second)).saying("-1s", "100ms to 8760h"),
	with(lock.WithFixedLease(time.Nanosecond)).saying("1ns", "100ms to 8760h"),
	with(lock.WithFixedLease(1<<63 - 1)).saying("100ms to 8760h"),
	with(lock.WithLease(time.Second), lock.WithFixedLease(time.Second)).saying("WithLease", "WithFixedLease", "contradict"),
	with(lock.WithFixedLease(time.Second), lock.WithMaxHold(time.Minute)).saying("WithMaxHold", "contradict"),
	with(lock.WithFixedLease(time.Second), lock.WithHeartbeat(time.Minute)).saying("WithHeartbeat", "contradict"),
	with(lock.WithLease(30*time.Second), lock.WithMaxHold(9*time.Second)).saying("WithMaxHold(9s)", "10s"),
	with(lock.WithLease(30*time.Second), lock.WithHeartbeat(9*time.Second)).saying("WithHeartbeat(9s)", "10s"),
	with(lock.WithMaxHold(0)).saying("WithMaxHold(0s)", "at least"),
	with(lock.WithHeartbeat(-1)).saying("WithHeartbeat(-1ns)", "at least"),
	with(lock.WithMinHold(-1)).saying("WithMinHold(-1ns)"),
	with(lock.WithMinHold(time.Minute), lock.WithMaxHold(20*time.Second)).saying("WithMaxHold(20s)"),
	with(lock.WithMinHold(time.Minute), lock.WithFixedLease(time.Second)).saying("WithFixedLease(1s)"),
	with(lock.WithTakeoverDelay(-1)).saying("WithTakeoverDelay(-1ns)", "24h"),
	with(lock.WithTakeoverDelay(24*time.Hour+1)).saying("WithTakeoverDelay(24h", "0 to 24h"),
	with(lock.WithReplicas(0, time.Second)).saying("WithReplicas(0, 1s): at least 1 replica"),
	with(lock.WithReplicas(-1, time.Second)).saying("WithReplicas(-1, 1s): at least 1 replica"),
	with(lock.WithReplicas(1, 0)).saying("WithReplicas(1, 0s): at least 1 replica and 1ms"), // 0 is for ever
	with(lock.WithReplicas(1, time.Microsecond)).saying("1ms"),
	with(lock.WithReplicas(1, time.Second), lock.WithLease(time.Second)).saying("shorter than the lease, 1s"),
	with(lock.WithReplicas(1, time.Second), lock.WithFixedLease(500*time.Millisecond)).saying("shorter than the lease, 500ms"),
	with(lock.WithHoldWarning(0)).saying("WithHoldWarning(0s)", "positive"),
	with(lock.WithWait(-1)).saying("WithWait(-1ns)", "negative"),
	with(lock.WithLifetime(nil)).saying("WithLifetime(nil)"), //nolint:staticcheck // that is the bad input
	with(lock.WithGroup("")).saying("WithGroup", "1 to 256"),
	with(lock.WithGroup(strings.Repeat("g", 257))).saying("WithGroup", "1 to 256"),
	with(lock.WithGroup("\xff")).saying("WithGroup", "UTF-8"),
	with(lock.WithRenewalSpans(lock.RenewalSpans(200))).saying("WithRenewalSpans(200)"),
	with(nil).saying("option is nil"),
})

// reserved is a name that has in it what keys of ours, or of Redisson, are named by.
func reserved(name, part string) badLock {
	return badLock{name: name, says: []string{name, part, "reserved"}}
}

func with(opts ...lock.LockOption) badLock { return badLock{name: "orders:42", opts: opts} }

func (b badLock) saying(what ...string) badLock {
	b.says = append([]string{b.name}, what...)
	return b
}

// everyCall are the errors of all that can be asked of a lock.
func everyCall(t *testing.T, m subject) map[string]error {
	ctx := t.Context()
	return map[string]error{
		"TryLock": second(m.TryLock(ctx)), "Lock": second(m.Lock(ctx)), "Do": m.Do(ctx, noWork),
		"Inspect": second(m.Inspect(ctx)), "ForceUnlock": second(m.ForceUnlock(ctx)),
	}
}

func badLocks(t *testing.T, w *world) {
	c := w.client()
	for _, b := range badLockTable {
		for what, err := range everyCall(t, w.lock(c, b.name, b.opts...)) {
			if !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("%s of %.40q: %v", what, b.name, err)
				continue
			}
			for _, say := range b.says {
				if !strings.Contains(err.Error(), say) {
					t.Errorf("%s of %.40q: %q doesn't say %q", what, b.name, err, say)
				}
			}
		}
	}
	if keys := w.rest(); len(keys) != 0 || len(c.Leases()) != 0 {
		t.Errorf("left behind: %v, %v", keys, c.Leases())
	}
}

func badClients(t *testing.T, w *world) {
	for _, b := range badLockTable[len(badNameTable):] { // what a lock can't have, a client can't have as its default
		opts := make([]lock.Option, len(b.opts))
		for i, o := range b.opts {
			if o != nil {
				opts[i] = o
			}
		}
		mustBeRefused(t, w, b.says[1:], opts...)
	}
	mustBeRefused(t, w, []string{"WithKeyPrefix", "256"}, lock.WithKeyPrefix(strings.Repeat("p", 257)))
	mustBeRefused(t, w, []string{"WithKeyPrefix", "UTF-8"}, lock.WithKeyPrefix("\xff"))
	mustBeRefused(t, w, []string{"prefix", "{tag}"}, lock.WithKeyPrefix("a{"))
	mustBeRefused(t, w, []string{"WithClientID", "1 to 256"}, lock.WithClientID(""))
	mustBeRefused(t, w, []string{"WithClientID", "1 to 256"}, lock.WithClientID(strings.Repeat("c", 257)))
	mustBeRefused(t, w, []string{"WithRenewalBatch", "4096"}, lock.WithRenewalBatch(4097))
	mustBeRefused(t, w, []string{"WithContentionProfile(-1)"}, lock.WithContentionProfile(-1))
	mustBeRefused(t, w, []string{"WithContentionProfile", "1000000"}, lock.WithContentionProfile(1_000_001))
	mustBeRefused(t, w, []string{"WithRenewalBatch(-1)"}, lock.WithRenewalBatch(-1))
	for _, d := range []time.Duration{-1, time.Millisecond, 99 * time.Millisecond, time.Hour + 1} {
		mustBeRefused(t, w, []string{"WithWaitGraph"}, lock.WithWaitGraph(d))
	}
	mustBeRefused(t, w, []string{"WithDeadlockBreaking"}, lock.WithWaitGraph(0), lock.WithDeadlockBreaking())
	mustBeRefused(t, w, []string{"WithRenewalBatch(0)", "1 to 4096"}, lock.WithRenewalBatch(0))
}

func mustBeRefused(t *testing.T, w *world, says []string, opts ...lock.Option) {
	t.Helper()
	c, err := lock.New(w.dial(), opts...)
	if c != nil || !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("New, to say %q: %v", says, err)
		return
	}
	for _, say := range says {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("New: %q doesn't say %q", err, say)
		}
	}
}

func keyOfAnotherType(t *testing.T, w *world) {
	c := w.client()
	m := w.lock(c, "a")
	w.raw.setString(w.key("a"), "not a lock")
	for what, err := range everyCall(t, m) {
		if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), "something else") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if keys := w.raw.keys(); len(keys) != 1 || len(c.Leases()) != 0 {
		t.Errorf("left behind: %v, %v", keys, c.Leases())
	}
	// The lock that was taken before somebody overwrote it spoils no other's renewal.
	w.raw.del(w.key("a"))
	bad, good := try(t, m), try(t, w.lock(c, "b"))
	w.raw.setString(w.key("a"), "not a lock")
	await(t, "Done", bad.Ended())
	mustMatch(t, bad.Err(), lock.ErrLost)
	if good.Err() != nil {
		t.Errorf("the other lock: %v", good.Err())
	}
	free(t, good)
	w.raw.del(w.key("a"))
}

func nils(t *testing.T, w *world) {
	var none context.Context
	c := w.client()
	for what, err := range map[string]error{
		"New(nil)":                  second(lock.New(nil)),
		"New of a nil Client":       second(lock.New((*redis.Client)(nil))),
		"New of a nil cluster":      second(lock.New((*redis.ClusterClient)(nil))),
		"New of a nil ring":         second(lock.New((*redis.Ring)(nil))),
		"New of a zero Client":      second(lock.New(new(redis.Client))),
		"New of a zero cluster":     second(lock.New(new(redis.ClusterClient))),
		"New of a zero ring":        second(lock.New(new(redis.Ring))),
		"New with a nil option":     second(lock.New(w.dial(), nil)),
		"Close without ctx":         c.Close(none),
		"Release of a nil lease":    (*lock.Lease)(nil).Release(t.Context()),
		"Release of a zero lease":   new(lock.Lease).Release(t.Context()),
		"Lock without ctx":          second(w.lock(c, "a").Lock(none)),
		"TryLock without ctx":       second(w.lock(c, "a").TryLock(none)),
		"Inspect without ctx":       second(w.lock(c, "a").Inspect(none)),
		"Lock of a nil Mutex":       second((*lock.Mutex)(nil).Lock(t.Context())),
		"Lock of a zero Mutex":      second(new(lock.Mutex).Lock(t.Context())),
		"Lock through a nil Client": second((*lock.Client)(nil).Mutex("a").Lock(t.Context())),
	} {
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	l := try(t, w.lock(c, "a"))
	err := l.Release(none)
	mustMatch(t, err, lock.ErrInvalid)
	if !strings.Contains(err.Error(), w.title("a")) {
		t.Errorf("Release without ctx: %q doesn't name the lock", err)
	}
	mustMatch(t, l.Release(t.Context()), lock.ErrReleased) // it was given back all the same
	free(t, try(t, w.lock(c, "a")))
}

func goodNames(t *testing.T, w *world) {
	c := w.client()
	for _, name := range []string{"a", "{tag}s", "a{tag}b", "{a}{b}", "a b\n\t", "ключ", "{job}:timeout", "lockdog:job", "redisson_lock", strings.Repeat("n", 1000), "%s%d", "*", "'"} {
		l, err := answered(t.Context(), w.rival(c, name))
		if err != nil {
			t.Errorf("%.40q: %v", name, err)
			continue
		}
		next := begin(context.Background(), w.lock(c, name))
		waiting(t, c, 1)
		free(t, l)
		free(t, granted(t, next))
	}
}

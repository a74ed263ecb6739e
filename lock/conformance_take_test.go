package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

var takeBehaviours = []behaviour{
	{name: "TryLock/free", test: tryLockOfFree},
	{name: "TryLock/held", test: tryLockOfHeld},
	{name: "TryLock/held without an expiry", test: tryLockOfHeldForever},
	{name: "TryLock/ended ctx", test: tryLockWithEndedCtx},
	{name: "Release/frees", test: releaseFrees},
	{name: "tokens/DEL of lock and counter", test: tokensRiseThroughDel},
	{name: "tokens/FLUSHALL", test: tokensRiseThroughFlush, alone: true},
	{name: "tokens/a server clock that is behind", test: tokensRisePastTheClock},
	{name: "names/client id", test: clientIDNamesTheHolder},
	{name: "names/default client id", test: defaultClientIDTellsHostAndPid},
	{name: "names/key prefix", test: keyPrefixSeparates},
	{name: "names/group", test: groupDefaultsToTheHeadOfTheName},
	{name: "Inspect/free", test: inspectFree},
	{name: "Inspect/held", test: inspectHeld},
	{name: "Inspect/Redisson's", test: inspectForeign},
	{name: "ForceUnlock/free", test: forceUnlockOfFree},
	{name: "ForceUnlock/tells the holder", test: forceUnlockTellsTheHolder},
	{name: "ForceUnlock/wakes waiters", test: forceUnlockWakes},
	{name: "Leases and Recent", test: leasesAndRecent, timed: true},
}

func tryLockOfFree(t *testing.T, w *world) {
	c := w.client()
	before := time.Now()
	l := try(t, w.lock(c, "a"))
	if l.Name() != "a" || l.Token() <= 0 || l.Err() != nil || l.Context().Err() != nil {
		t.Errorf("name %q, token %d, err %v, context %v", l.Name(), l.Token(), l.Err(), l.Context().Err())
	}
	// Trust ends before the lease does, counted from before the request.
	if d := l.Deadline(); d.After(before.Add(ttl)) && time.Until(d) > ttl-ttl/100 || d.Before(before.Add(ttl/2)) {
		t.Errorf("deadline %v after the request, for a lease of %v", d.Sub(before), ttl)
	}
	if held := w.holders("a"); len(held) != 1 || held[w.member(l)] != "1" {
		t.Errorf("in Redis: %v; owner %q", held, l.Owner())
	}
	if w.kind.holders == nil {
		hash := w.raw.hgetall(w.key("a"))
		meta, mode := hash["@lockdog"], hash["mode"] // one of them
		if mode == "" && !strings.HasPrefix(strings.TrimLeft(meta, "+~"), strconv.FormatInt(l.Token(), 10)) || len(hash) != 2 {
			t.Errorf("in Redis: %v; token %d", hash, l.Token())
		}
	}
	if ms := w.left("a"); ms <= 0 || ms > ttl.Milliseconds() {
		t.Errorf("PTTL %d ms, for a lease of %v", ms, ttl)
	}
	free(t, l)
}

func tryLockOfHeld(t *testing.T, w *world) {
	a, b := w.client(), w.client()
	l := try(t, w.rival(a, "a"))
	for _, c := range []*lock.Client{a, b} {
		got, err := answered(t.Context(), w.lock(c, "a"))
		mustMatch(t, err, lock.ErrHeld)
		var held *lock.HeldError
		if got != nil || !errors.As(err, &held) || held.Name != "a" || !w.tells(held.Owner, l) || held.Remaining <= 0 || held.Remaining > ttl {
			t.Errorf("%v, %+v; the holder is %q", got, held, l.Owner())
		}
	}
	free(t, l)
}

func tryLockOfHeldForever(t *testing.T, w *world) {
	w.hold("a", "somebody:1", "1", 0)
	_, err := answered(t.Context(), w.lock(w.client(), "a"))
	var held *lock.HeldError
	if !errors.As(err, &held) || held.Owner != w.shown(w.owner("somebody:1")) || held.Remaining >= 0 ||
		held.Owner != "" && !strings.Contains(err.Error(), "without an expiry") {
		t.Errorf("%v, %+v", err, held)
	}
}

func tryLockWithEndedCtx(t *testing.T, w *world) {
	c := w.client()
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for _, take := range []func(context.Context) (*lock.Lease, error){w.lock(c, "a").TryLock, w.lock(c, "a").Lock} {
		if _, err := take(ctx); !errors.Is(err, why) || !strings.Contains(err.Error(), w.title("a")) {
			t.Errorf("%v", err)
		}
	}
	if keys := w.rest(); len(keys) != 0 {
		t.Errorf("left in Redis: %v", keys)
	}
}

func releaseFrees(t *testing.T, w *world) {
	c := w.client()
	l := try(t, w.lock(c, "a"))
	free(t, l)
	await(t, "Done", l.Ended())
	mustMatch(t, l.Err(), lock.ErrReleased)
	mustMatch(t, context.Cause(l.Context()), lock.ErrReleased)
	mustMatch(t, l.Release(t.Context()), lock.ErrReleased)
	if ms := w.left("a"); ms != -2 {
		t.Errorf("the key is there yet: PTTL %d", ms)
	}
	free(t, try(t, w.lock(w.client(), "a")))
}

// grantsRise takes and releases a lock, by two clients, with something done in between, and checks its tokens.
func grantsRise(t *testing.T, w *world, between func()) {
	t.Helper()
	patient := lock.WithLease(patience) // nobody waits for its end, and a flush on a busy machine takes its time
	a, b := w.client(patient), w.client(patient)
	var last int64
	for i := range 6 {
		l := try(t, w.lock([]*lock.Client{a, b}[i%2], "a"))
		if l.Token() <= last {
			t.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		free(t, l)
		between()
	}
}

func tokensRiseThroughFlush(t *testing.T, w *world) {
	grantsRise(t, w, func() {
		w.raw.flush()
		time.Sleep(time.Millisecond) // a token is Redis's time
	})
}

func tokensRiseThroughDel(t *testing.T, w *world) {
	grantsRise(t, w, func() {
		for _, key := range w.raw.keys() {
			w.raw.del(key)
		}
		time.Sleep(time.Millisecond) // a token is Redis's time
	})
}

func tokensRisePastTheClock(t *testing.T, w *world) {
	c := w.client()
	free(t, try(t, w.lock(c, "a")))
	var fence string
	for _, key := range w.raw.keys() {
		if strings.Contains(key, "lockdog:fence:{") {
			fence = key
		}
	}
	const ahead = 4_000_000_000_000_000 // the year 2096, in µs
	w.raw.setString(fence, strconv.FormatInt(ahead, 10))
	last, most := int64(ahead), int64(1)
	if w.kind.quorum { // each of up to four tries draws one
		most = 4
	}
	for range 3 {
		l := try(t, w.lock(c, "a"))
		if l.Token() <= last || l.Token() > last+most {
			t.Errorf("token %d, the counter stood at %d", l.Token(), last)
		}
		last = l.Token()
		free(t, l)
	}
}

func clientIDNamesTheHolder(t *testing.T, w *world) {
	c := w.client(lock.WithClientID("billing/7"))
	l := try(t, w.lock(c, "a"))
	if !regexp.MustCompile(`^billing/7:[0-9a-f]{16}-[0-9]+` + w.kind.ending + `$`).MatchString(l.Owner()) {
		t.Errorf("owner %q", l.Owner())
	}
	free(t, l)
	again := try(t, w.lock(w.client(lock.WithClientID("billing/7")), "a"))
	if again.Owner() == l.Owner() {
		t.Error("a restarted client looks like its predecessor")
	}
	free(t, again)
}

func defaultClientIDTellsHostAndPid(t *testing.T, w *world) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	l := try(t, w.lock(w.client(), "a"))
	if want := fmt.Sprintf("%s/%d:", host, os.Getpid()); !strings.HasPrefix(l.Owner(), want) {
		t.Errorf("owner %q, want it to start with %q", l.Owner(), want)
	}
	free(t, l)
}

func keyPrefixSeparates(t *testing.T, w *world) {
	a, b := w.client(lock.WithKeyPrefix(w.prefix+"x:")), w.client(lock.WithKeyPrefix(w.prefix+"y:"))
	la, lb := try(t, w.lock(a, "a")), try(t, w.lock(b, "a"))
	if strconv.Quote(la.Name()) != w.title("a") {
		t.Errorf("the name shows the prefix: %q", la.Name())
	}
	for _, key := range w.raw.keys() {
		key = strings.TrimPrefix(key, "{") // what Redisson has beside a read-write lock
		if !strings.HasPrefix(key, w.prefix+"x:") && !strings.HasPrefix(key, w.prefix+"y:") {
			t.Errorf("the key %q has neither prefix", key)
		}
	}
	free(t, la)
	free(t, lb)
}

func groupDefaultsToTheHeadOfTheName(t *testing.T, w *world) {
	c := w.client()
	for _, x := range []struct {
		name, group string
		opts        []lock.LockOption
	}{
		{"orders:42:items", "orders", nil},
		{"nightly", "default", nil},
		{"users:7", "people", []lock.LockOption{lock.WithGroup("people")}},
	} {
		l := try(t, w.lock(c, x.name, x.opts...))
		if got := c.Leases(); len(got) != 1 || got[0].Group != x.group {
			t.Errorf("%s: %+v, want the group %q", x.name, got, x.group)
		}
		free(t, l)
	}
}

func inspectFree(t *testing.T, w *world) {
	if h, err := w.lock(w.client(), "a").Inspect(t.Context()); err != nil || h != (lock.Holder{}) {
		t.Errorf("%+v, %v", h, err)
	}
}

func inspectHeld(t *testing.T, w *world) {
	l := try(t, w.lock(w.client(), "a"))
	h, err := w.lock(w.client(lock.WithClientID("the inspector")), "a").Inspect(t.Context())
	if err != nil || !h.Held || h.Owner != l.Owner() || h.ClientID == "" || h.ClientID != l.Owner()[:strings.IndexByte(l.Owner(), ':')] || h.Count != 1 || h.Token != l.Token() || h.Remaining <= 0 || h.Remaining > ttl {
		t.Errorf("%+v, %v; held by %q with token %d", h, err, l.Owner(), l.Token())
	}
	free(t, l)
}

func inspectForeign(t *testing.T, w *world) {
	const redisson = "3f2b8c1e-0000-4000-8000-1234567890ab:1"
	w.hold("a", redisson, "3", time.Minute)
	c := w.client()
	h, err := w.lock(c, "a").Inspect(t.Context())
	if err != nil || !h.Held || h.Owner != w.owner(redisson) || h.Count != 3 || h.Token != 0 || h.TraceID != "" || h.Remaining <= 30*time.Second {
		t.Errorf("%+v, %v", h, err)
	}
	var held *lock.HeldError
	if _, err := w.lock(c, "a").TryLock(t.Context()); !errors.As(err, &held) || held.Owner != w.owner(redisson) {
		t.Errorf("TryLock: %v", err)
	}
}

func forceUnlockOfFree(t *testing.T, w *world) {
	if was, err := w.lock(w.client(), "a").ForceUnlock(t.Context()); was || err != nil {
		t.Errorf("%v, %v", was, err)
	}
}

func forceUnlockTellsTheHolder(t *testing.T, w *world) {
	const long = time.Hour // no renewal of its own accord finds out
	holder, operator := w.client(), w.client()
	other := try(t, w.lock(holder, "b", lock.WithLease(long)))
	var l *lock.Lease
	eventually(t, patience, func() bool {
		l = try(t, w.lock(holder, "a", lock.WithLease(long)))
		// The client subscribes to its control channel after its first grant: forcing comes again until it is heard.
		if was, err := w.lock(operator, "a").ForceUnlock(t.Context()); !was || err != nil {
			t.Fatalf("%v, %v", was, err)
		}
		eventually(t, patience, func() bool {
			if l.Err() != nil {
				return true
			}
			w.holdAs("a", l.Owner(), "1", long)
			_, err := w.lock(operator, "a").ForceUnlock(t.Context())
			return err != nil
		})
		return !isMissing(l) // see isToldOfForce
	})
	mustBeLost(t, l, lock.CauseForced)
	mustMatch(t, l.Release(t.Context()), lock.ErrLost)
	if other.Err() != nil {
		t.Errorf("another lease ended: %v", other.Err())
	}
	free(t, other)
}

func forceUnlockWakes(t *testing.T, w *world) {
	w.hold("a", "somebody:1", "1", time.Hour)
	c, operator := w.client(), w.client()
	next := begin(context.Background(), w.lock(c, "a"))
	waiting(t, c, 1)
	if was, err := w.lock(operator, "a").ForceUnlock(t.Context()); !was || err != nil {
		t.Fatalf("%v, %v", was, err)
	}
	free(t, granted(t, next))
}

func leasesAndRecent(t *testing.T, w *world) {
	c := w.client()
	l := try(t, w.lock(c, "orders:1"))
	next := begin(context.Background(), w.lock(c, "orders:1"))
	waiting(t, c, 1)
	for _, info := range c.Leases() {
		if info.Name != "orders:1" || info.Kind != w.kind.name || info.Group != "orders" || info.Lease != ttl || info.Since.IsZero() {
			t.Errorf("%+v", info)
		}
		switch info.State {
		case lock.StateHeld:
			if info.Owner != l.Owner() || info.Token != l.Token() || info.NextRenewal.IsZero() || info.Deadline.IsZero() {
				t.Errorf("held: %+v", info)
			}
		case lock.StateWaiting:
			if !w.tells(info.WaitsFor, l) || info.Token != 0 || !info.Deadline.IsZero() {
				t.Errorf("waiting: %+v", info)
			}
		default:
			t.Errorf("state %q", info.State)
		}
	}
	free(t, l)
	second := granted(t, next)
	w.lose("orders:1")
	mustBeLost(t, second, lock.CauseMissing)
	eventually(t, patience, func() bool { return len(c.Leases()) == 0 && len(c.Recent()) == 2 }) // a moment after Done
	recent := c.Recent()
	if recent[0].End != "released" || recent[0].Token != l.Token() ||
		recent[1].End != "lost" || recent[1].Why != string(lock.CauseMissing) || !errors.Is(recent[1].Err, lock.ErrLost) {
		t.Errorf("recent: %+v", recent)
	}
}

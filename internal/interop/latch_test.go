//go:build interop

package interop_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

func latchChannel(key string) string { return "redisson_countdownlatch__channel__{" + key + "}" }

// latch is one as both sides see it.
type latch struct {
	*rig
	*lock.Latch
	name   string
	theirs remote
}

func (r *rig) latch(name string) latch {
	return latch{r, r.locks.Latch(name), name, remote{r.java, "latch", name}}
}

// is fails the test unless both sides say that is the count.
func (l latch) is(t *testing.T, want int) {
	t.Helper()
	if n, err := l.Count(t.Context()); n != want || err != nil {
		t.Fatalf("Count: %d, %v, want %d", n, err, want)
	}
	l.theirs.says(t, want, "asker", "getCount")
}

// set closes it, and reports whether it was open.
func (l latch) set(t *testing.T, n int) bool {
	t.Helper()
	done, err := l.TrySetCount(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func (l latch) countDown(t *testing.T) {
	t.Helper()
	if err := l.CountDown(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// testLatchAgrees has both sides set one, and count it down.
func testLatchAgrees(t *testing.T, r *rig) {
	l := r.latch(t.Name())
	for _, side := range []string{"go", "java"} {
		l.is(t, 0)
		l.theirs.says(t, true, "a", "await", 1000)
		if err := l.Wait(t.Context()); err != nil {
			t.Fatalf("%s: an open latch: %v", side, err)
		}
		if side == "go" {
			if !l.set(t, 3) {
				t.Fatal("it couldn't be set")
			}
		} else {
			l.theirs.says(t, true, "a", "trySetCount", 3)
		}
		if l.set(t, 9) {
			t.Error("TrySetCount of a closed latch: true")
		}
		l.theirs.says(t, false, "a", "trySetCount", 9)
		l.is(t, 3)
		l.countDown(t)
		l.is(t, 2)
		l.theirs.call(t, "a", "countDown")
		l.is(t, 1)
		l.theirs.says(t, false, "a", "await", 50)
		if err := r.locks.Latch(l.name, lock.WithWait(50*time.Millisecond)).Wait(t.Context()); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("Wait: %v, want ErrHeld", err)
		}
		if side == "go" {
			l.countDown(t)
		} else {
			l.theirs.call(t, "a", "countDown")
		}
	}
	l.is(t, 0)
	l.set(t, 1)
	open := make(chan error, 1)
	ctx := t.Context()
	go func() { open <- l.Wait(ctx) }()
	r.awaitListeners(t, latchChannel(prefix+l.name), 1)
	l.theirs.says(t, true, "a", "delete")
	select {
	case err := <-open:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(lease / 3):
		t.Fatal("a deleted latch is open, and lockdog still waits for it")
	}
	l.is(t, 0)
	l.countDown(t) // as often as anybody likes
	l.theirs.call(t, "a", "countDown")
	l.is(t, 0)
	if n, err := r.rdb.Exists(t.Context(), prefix+l.name).Result(); err != nil || n != 0 {
		t.Errorf("EXISTS: %d, %v, want 0", n, err)
	}
}

// testLatchWakes measures the time from the last count down, by either side, until a waiter of each goes on.
func testLatchWakes(t *testing.T, r *rig) {
	took := map[string][]time.Duration{}
	for i := range wakeRounds + 2 {
		l := r.latch(fmt.Sprintf("%s/%d", t.Name(), i))
		l.set(t, 2)
		open := make(chan grant, 1)
		ctx := t.Context()
		go func() {
			err := l.Wait(ctx)
			open <- grant{err: err, at: time.Now()}
		}()
		waiter := l.theirs.send(t, "waiter", "await")
		r.awaitListeners(t, latchChannel(prefix+l.name), 2)

		var began time.Time
		last := "Java opens"
		if i%2 == 0 {
			last = "Go opens"
			l.theirs.call(t, "a", "countDown")
			began = time.Now()
			l.countDown(t)
		} else {
			l.countDown(t)
			began = time.Now()
			l.theirs.call(t, "a", "countDown")
		}
		g := awaitGrant(t, open)
		waiter.result(t, callLimit)
		if i < 2 { // a JVM loads classes when it first needs them
			continue
		}
		took[last+", Go waits"] = append(took[last+", Go waits"], g.at.Sub(began))
		took[last+", Java waits"] = append(took[last+", Java waits"], waiter.at.Sub(began))
	}
	for what, rounds := range took {
		judgeWakes(t, what, rounds)
	}
}

// testLatchNames has a name with braces. Redisson publishes what happens to it on a channel in another slot: where that matters, lockdog
// refuses it, before anything is in Redis.
func testLatchNames(t *testing.T, r *rig) {
	l := r.latch(t.Name() + "/{tag}")
	done, err := l.TrySetCount(t.Context(), 1)
	if len(r.nodes) > 1 {
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("TrySetCount: %v, %v, want ErrInvalid", done, err)
		}
		l.is(t, 0)
		return
	}
	if !done || err != nil {
		t.Fatalf("TrySetCount: %v, %v", done, err)
	}
	waiter := l.theirs.send(t, "waiter", "await")
	r.awaitListeners(t, latchChannel(prefix+l.name), 1)
	l.countDown(t)
	waiter.result(t, callLimit)
	l.is(t, 0)
}

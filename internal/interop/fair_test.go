//go:build interop

package interop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// queued are the owners that wait for the fair lock, the next one first.
func (r *rig) queued(ctx context.Context, name string) ([]string, error) {
	return r.rdb.LRange(ctx, prefixName("redisson_lock_queue", prefix+name), 0, -1).Result()
}

func (r *rig) awaitQueue(t *testing.T, name string, want int) []string {
	t.Helper()
	var waiting []string
	until(t, fmt.Sprintf("%d waiters in the queue", want), func(ctx context.Context) (err error) {
		waiting, err = r.queued(ctx, name)
		if err == nil && len(waiting) != want {
			holder, failed := r.rdb.HKeys(ctx, prefix+name).Result()
			err = errors.Join(fmt.Errorf("there are %v, and the lock has %v", waiting, holder), failed)
		}
		return err
	})
	return waiting
}

// fair is the kind these tests are about.
func (r *rig) fair(t *testing.T) (*kind, ours, remote) {
	t.Helper()
	k := kindNamed("fair")
	o, theirs := r.pair(t, k)
	return k, o, theirs
}

// testFairOrder has waiters of both sides, in turn, and has each wait for the one before it to be served.
func testFairOrder(t *testing.T, r *rig) {
	const waiters = 8
	k, o, theirs := r.fair(t)
	h := tryLock(t, o)
	var java [waiters]*call
	var golang [waiters]<-chan grant
	for i := range waiters {
		if i%2 == 0 {
			java[i] = theirs.send(t, fmt.Sprint(i), "lock")
		} else {
			golang[i] = lockSoon(t, o)
		}
		r.awaitQueue(t, t.Name(), i+1)
	}
	<-time.After(2 * lease) // each has to keep its place a few times
	began := time.Now()
	release(t, h)
	for i := range waiters { // who is served out of turn has the lock until its turn comes, and this never ends
		if i%2 == 0 {
			java[i].result(t, callLimit)
			judgeWoken(t, java[i].at.Sub(began))
			began = time.Now()
			theirs.call(t, fmt.Sprint(i), "unlock")
			continue
		}
		g := awaitGrant(t, golang[i])
		judgeWoken(t, g.at.Sub(began))
		began = time.Now()
		release(t, g.held)
	}
	r.leavesNothing(t, k, t.Name())
}

// testFairGivesUp has the first waiter of a lock that is held give up, on either side: who waits behind it gets in as soon as
// the lock is released.
func testFairGivesUp(t *testing.T, r *rig) {
	const patience = 1500 * time.Millisecond // in which all three are in the queue
	k, o, theirs := r.fair(t)
	for _, first := range []string{"go", "java"} {
		h := tryLock(t, o)
		var java *call
		var golang <-chan grant
		if first == "java" {
			java = theirs.send(t, "first", "tryLock", patience.Milliseconds(), -1)
		} else {
			golang = lockSoon(t, k.open(r.locks, t.Name(), lock.WithWait(patience)))
		}
		r.awaitQueue(t, t.Name(), 1)
		waiter := theirs.send(t, "waiter", "lock")
		r.awaitQueue(t, t.Name(), 2)
		got := lockSoon(t, o)
		r.awaitQueue(t, t.Name(), 3)

		if first == "java" {
			if answer := java.result(t, callLimit); answer != "false" {
				t.Fatalf("tryLock: %s, want false", answer)
			}
		} else if g := <-golang; !errors.Is(g.err, lock.ErrHeld) {
			t.Fatalf("Lock: %v, want ErrHeld", g.err)
		}
		r.awaitQueue(t, t.Name(), 2)
		began := time.Now()
		release(t, h)
		waiter.result(t, callLimit)
		judgeWoken(t, waiter.at.Sub(began))
		began = time.Now()
		theirs.call(t, "waiter", "unlock")
		g := awaitGrant(t, got)
		judgeWoken(t, g.at.Sub(began))
		release(t, g.held)
		r.leavesNothing(t, k, t.Name())
	}
}

// testFairTurn has the next in the queue be a process that is stopped, when the lock is released. Nobody takes the lock past it.
func testFairTurn(t *testing.T, r *rig) {
	const (
		patience = 10 * lease  // so long is a place of lockdog's kept
		brief    = time.Second // Redisson gives up a command after 3 s, also if its process was stopped meanwhile
	)
	for side, launch := range map[string]func() (*peer, string){
		"java": func() (*peer, string) { return launchJava(t, r.universal.Addrs, prefix, lease), "fair" },
		"go":   func() (*peer, string) { return launchGo(t, r.universal.Addrs, patience), "fair" },
	} {
		t.Run(side, func(t *testing.T) {
			k, o, theirs := r.fair(t)
			p, kind := launch()
			p.ready(t)
			h := tryLock(t, o)
			next := remote{p, kind, t.Name()}.send(t, "next", "lock")
			place := r.awaitQueue(t, t.Name(), 1)
			p.pause(t)
			release(t, h)

			if held := refused(t, o); held.Owner != "" {
				t.Errorf("TryLock: %v, want nobody in it", held)
			}
			theirs.says(t, false, "a", "tryLock")
			_, err := k.open(r.locks, t.Name(), lock.WithWait(brief)).take(t.Context(), true)
			if !errors.Is(err, lock.ErrHeld) {
				t.Fatalf("Lock: %v, want ErrHeld", err)
			}
			theirs.says(t, false, "a", "tryLock", 100, -1)
			if still := r.awaitQueue(t, t.Name(), 1); !slices.Equal(still, place) {
				t.Errorf("the queue is %v, want %v", still, place)
			}

			p.resume(t)
			next.result(t, callLimit)
			if is := inspect(t, o); is.Owner != place[0] {
				t.Errorf("Inspect: %+v, want %v", is, place)
			}
			p.kill(t)
			force(t, o, true)
			r.leavesNothing(t, k, t.Name())
		})
	}
}

// testFairWaiterDies kills a process of lockdog's that is next. It had asked for its place for a lease; after that Java's waiter, which nobody
// wakes, is in, and Redisson didn't ask all the time until then.
func testFairWaiterDies(t *testing.T, r *rig) {
	k, o, theirs := r.fair(t)
	doomed := launchGo(t, r.universal.Addrs, lease).ready(t)
	h := tryLock(t, o)
	remote{doomed, k.name, t.Name()}.send(t, "waiter", "lock")
	r.awaitQueue(t, t.Name(), 1)
	waiter := theirs.send(t, "waiter", "lock")
	r.awaitQueue(t, t.Name(), 2)

	doomed.kill(t)
	killed := time.Now()
	release(t, h)
	waiter.result(t, callLimit)
	took := waiter.at.Sub(killed)
	t.Logf("a waiter of Java's has the lock %v after the one before it died", took.Round(time.Millisecond))
	if took > lease+slack {
		t.Errorf("the waiter had the lock %v after the one before it died, want within %v", took, lease+slack)
	}
	theirs.call(t, "waiter", "unlock")
	until(t, "the end of what lockdog knew of the dead one, which Redisson doesn't clear away", func(ctx context.Context) error {
		n, err := r.rdb.Exists(ctx, prefixName("lockdog_fair", prefix+t.Name())).Result()
		if err == nil && n != 0 {
			err = fmt.Errorf("it is there for %v", r.rdb.PTTL(ctx, prefixName("lockdog_fair", prefix+t.Name())).Val())
		}
		return err
	})
	r.leavesNothing(t, k, t.Name())
}

// testFairKeepsPlaces has Java's waiters come and go before one of lockdog's. Each grant to Java brings the deadlines of all who wait
// forward by the five minutes that it might have waited; the one of lockdog's must outlive that.
func testFairKeepsPlaces(t *testing.T, r *rig) {
	k, o, theirs := r.fair(t)
	const before = 3
	theirs.call(t, "holder", "lock")
	var waiters []*call
	for i := range before {
		waiters = append(waiters, theirs.send(t, fmt.Sprint(i), "lock"))
		r.awaitQueue(t, t.Name(), i+1)
	}
	got := lockSoon(t, o)
	place := r.awaitQueue(t, t.Name(), before+1)[before]

	thread := "holder"
	for i, w := range waiters {
		theirs.call(t, thread, "unlock")
		w.result(t, callLimit)
		thread = fmt.Sprint(i)
		theirs.says(t, false, "passer-by", "tryLock") // drops who is past its deadline
		if waiting, err := r.queued(t.Context(), t.Name()); err != nil || waiting[len(waiting)-1] != place {
			t.Fatalf("after %d grants to Java the queue is %v, %v; want %s in it", i+1, waiting, err, place)
		}
		deadline, err := r.rdb.ZScore(t.Context(), prefixName("redisson_lock_timeout", prefix+t.Name()), place).Result()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("after %d grants to Java lockdog's deadline is in %s", i+1, time.Until(time.UnixMilli(int64(deadline))).Round(time.Second))
	}
	theirs.call(t, thread, "unlock")
	g := awaitGrant(t, got)
	if g.Owner() != place {
		t.Errorf("the lock went to %s, want %s", g.Owner(), place)
	}
	release(t, g.held)
	r.leavesNothing(t, k, t.Name())
}

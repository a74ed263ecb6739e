//go:build interop

package interop_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// rw is a read-write lock as both sides see it.
type rw struct {
	*rig
	name                  string
	reads, writes         ours
	javaReads, javaWrites remote
}

func (r *rig) rw(t *testing.T, opts ...lock.LockOption) rw {
	t.Helper()
	there := remote{r.java, "read", t.Name()}
	return rw{r, t.Name(), reads(r.locks, t.Name(), opts...), writes(r.locks, t.Name(), opts...), there, there.as("write")}
}

// lasts fails the test unless the lock's entry in Redis lives that long yet, give or take the time a slow machine takes.
func (l rw) lasts(t *testing.T, when string, want time.Duration) {
	t.Helper()
	left, err := l.rdb.PTTL(t.Context(), prefix+l.name).Result()
	if err != nil || left > want || left < want-slack {
		t.Errorf("%s the lock's entry has %v left, %v; want %v", when, left, err, want)
	}
}

// is fails the test unless that is who holds it.
func (l rw) is(t *testing.T, mode string, readers int) {
	t.Helper()
	if h := inspect(t, l.writes); h.Held != (mode != "") || h.Mode != mode || h.Readers != readers {
		t.Fatalf("Inspect: %+v, want mode %q with %d readers", h, mode, readers)
	}
	l.javaReads.says(t, readers > 0, "asker", "isLocked")
	l.javaWrites.says(t, mode == "write", "asker", "isLocked")
}

// refusesWriters fails the test unless nobody may write.
func (l rw) refusesWriters(t *testing.T) {
	t.Helper()
	_ = refused(t, l.writes)
	l.javaWrites.says(t, false, "writer", "tryLock")
}

func (l rw) leavesNothing(t *testing.T) {
	t.Helper()
	l.rig.leavesNothing(t, kindNamed("write"), l.name)
}

// testReadersTogether has readers of both sides at once. Who leaves takes away neither the lock nor the lease of the others.
func testReadersTogether(t *testing.T, r *rig) {
	const long, short, brief = 40 * time.Second, 20 * time.Second, 5 * time.Second
	l := r.rw(t, lock.WithFixedLease(long))
	h := tryLock(t, l.reads)
	l.javaReads.call(t, "a", "lock", short.Milliseconds())
	l.javaReads.call(t, "a", "lock", brief.Milliseconds()) // a reader that entered twice has two leases
	l.javaReads.call(t, "b", "lock", brief.Milliseconds())
	l.is(t, "read", 3)
	l.lasts(t, "with all readers", long)
	l.refusesWriters(t)

	l.javaReads.call(t, "b", "unlock")
	l.is(t, "read", 2)
	l.lasts(t, "after one of Java's left", long)
	release(t, h)
	l.is(t, "read", 1)
	l.lasts(t, "after lockdog's left", short)
	l.refusesWriters(t)

	l.javaReads.call(t, "a", "unlock")
	l.lasts(t, "after one of two entries of Java's ended", short)
	h = tryLock(t, l.reads)
	l.javaReads.call(t, "a", "unlock")
	l.javaReads.throws(t, "IllegalMonitorStateException", "a", "unlock")
	l.is(t, "read", 1)
	l.lasts(t, "after Java's last left", long)
	l.refusesWriters(t)
	release(t, h)
	l.is(t, "", 0)
	l.leavesNothing(t)
}

// testLastReaderWakes has a writer of each side wait for readers of both.
func testLastReaderWakes(t *testing.T, r *rig) {
	l := r.rw(t)
	for _, last := range []string{"go", "java"} {
		for _, writer := range []string{"go", "java"} {
			h := tryLock(t, l.reads)
			l.javaReads.call(t, "a", "lock")
			var asked *call
			var got <-chan grant
			if writer == "java" {
				asked = l.javaWrites.send(t, "writer", "lock")
			} else {
				got = lockSoon(t, l.writes)
			}
			r.awaitListeners(t, rwChannel(prefix+l.name), 1)

			var left time.Time
			if last == "java" {
				release(t, h)
				left = time.Now()
				l.javaReads.call(t, "a", "unlock")
			} else {
				l.javaReads.call(t, "a", "unlock")
				left = time.Now()
				release(t, h)
			}
			if writer == "java" {
				asked.result(t, callLimit)
				judgeWoken(t, asked.at.Sub(left))
				l.is(t, "write", 0)
				l.javaWrites.call(t, "writer", "unlock")
			} else {
				g := awaitGrant(t, got)
				judgeWoken(t, g.at.Sub(left))
				l.is(t, "write", 0)
				release(t, g.held)
			}
			l.leavesNothing(t)
			r.awaitListeners(t, rwChannel(prefix+l.name), 0)
		}
	}
}

// testDowngrades has a writer of each side become a reader, and a reader of the other side wait for that. Redisson tells nobody:
// lockdog's reader comes by when the lease that it has seen is over.
func testDowngrades(t *testing.T, r *rig) {
	l := r.rw(t)
	w := tryLock(t, l.writes)
	h, err := l.reads.Lock(w.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.is(t, "write", 1)
	asked := l.javaReads.send(t, "a", "lock")
	r.awaitListeners(t, rwChannel(prefix+l.name), 1)
	time.Sleep(toSleep)
	began := time.Now()
	release(t, w)
	asked.result(t, callLimit)
	judgeWoken(t, asked.at.Sub(began))
	l.is(t, "read", 2)
	l.refusesWriters(t)
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.is(t, "read", 1)
	l.javaReads.call(t, "a", "unlock")
	l.leavesNothing(t)

	l.javaWrites.call(t, "a", "lock")
	l.javaReads.call(t, "a", "lock")
	l.is(t, "write", 1)
	got := lockSoon(t, l.reads)
	r.awaitListeners(t, rwChannel(prefix+l.name), 1)
	began = time.Now()
	l.javaWrites.call(t, "a", "unlock")
	g := awaitGrant(t, got)
	took := g.at.Sub(began)
	t.Logf("lockdog's reader is in %v after Java's writer became a reader", took.Round(time.Millisecond))
	if took > lease+slack {
		t.Errorf("lockdog's reader is in %v after Java's writer became a reader, want within %v", took, lease+slack)
	}
	l.is(t, "read", 2)
	l.refusesWriters(t)
	l.javaReads.call(t, "a", "unlock")
	l.is(t, "read", 1)
	release(t, g.held)
	l.leavesNothing(t)
}

// testReadersKeep has readers of both sides keep the lock for longer than a lease: together, and each alone after the other has left.
func testReadersKeep(t *testing.T, r *rig) {
	l := r.rw(t)
	keep := func(readers int) {
		t.Helper()
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for began := time.Now(); time.Since(began) < lease+lease/3; <-ticker.C {
			l.refusesWriters(t)
			if h := inspect(t, l.reads); h.Readers != readers {
				t.Fatalf("Inspect: %+v, want %d readers", h, readers)
			}
		}
	}
	h := tryLock(t, l.reads)
	l.javaReads.call(t, "a", "lock")
	keep(2)
	l.javaReads.call(t, "a", "unlock")
	keep(1)
	l.javaReads.call(t, "a", "lock")
	release(t, h)
	keep(1)
	l.javaReads.says(t, true, "a", "isHeldByCurrentThread")
	l.javaReads.call(t, "a", "unlock")
	l.leavesNothing(t)
}

// testReaderCrashes kills a reader of each side while one of the other holds on. The dead one's lease ends: once the other has left, too,
// a writer is in, without having to wait for anything else.
func testReaderCrashes(t *testing.T, r *rig) {
	t.Run("java", func(t *testing.T) {
		l := r.rw(t)
		doomed := launchJava(t, r.universal.Addrs, prefix, lease).ready(t)
		remote{doomed, "read", l.name}.call(t, "doomed", "lock")
		h := tryLock(t, l.reads)
		doomed.kill(t)
		l.outlives(t, func() { release(t, h) })
	})
	t.Run("go", func(t *testing.T) {
		l := r.rw(t)
		doomed := launchGo(t, r.universal.Addrs, lease).ready(t)
		remote{doomed, "read-write", l.name}.call(t, "doomed", "lock")
		l.javaReads.call(t, "a", "lock")
		doomed.kill(t)
		l.outlives(t, func() { l.javaReads.call(t, "a", "unlock") })
	})
}

// outlives lets the lease of a dead reader run out, and has a writer of each side wait for the living one, which leave ends.
func (l rw) outlives(t *testing.T, leave func()) {
	t.Helper()
	until(t, "the dead reader's lease is over", func(ctx context.Context) error {
		readers := 0
		for _, node := range l.nodes {
			keys, err := node.Keys(ctx, "*"+l.name+"*:rwlock_timeout:*").Result()
			if err != nil {
				return err
			}
			readers += len(keys)
		}
		if readers != 1 {
			return fmt.Errorf("there are %d", readers)
		}
		return nil
	})
	l.refusesWriters(t)
	asked := l.javaWrites.send(t, "waiter", "lock")
	l.awaitListeners(t, rwChannel(prefix+l.name), 1)
	began := time.Now()
	leave()
	asked.result(t, callLimit)
	judgeWoken(t, asked.at.Sub(began))
	l.javaWrites.call(t, "waiter", "unlock")
	l.leavesNothing(t)
}

// testReadersForced has each side take the lock away from readers of both.
func testReadersForced(t *testing.T, r *rig) {
	l := r.rw(t)
	for _, who := range []string{"go", "java"} {
		h, other := tryLock(t, l.reads), tryLock(t, l.reads)
		l.javaReads.call(t, "a", "lock")
		if who == "go" {
			force(t, l.writes, true)
		} else {
			l.javaWrites.says(t, false, "forcer", "forceUnlock") // nobody writes
			l.javaReads.says(t, true, "forcer", "forceUnlock")
		}
		l.is(t, "", 0)
		l.javaReads.says(t, false, "a", "isHeldByCurrentThread")
		l.javaReads.throws(t, "IllegalMonitorStateException", "a", "unlock")
		awaitLost(t, h)
		if err := other.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release: %v, want ErrLost", err)
		}
		l.leavesNothing(t)
	}
}

// testWriterPreferred has a writer of lockdog's wait: readers of lockdog's stay out until it has had its turn, and those of Java don't.
func testWriterPreferred(t *testing.T, r *rig) {
	l := r.rw(t)
	l.javaReads.call(t, "a", "lock")
	got := lockSoon(t, l.writes)
	until(t, "readers are refused", func(ctx context.Context) error {
		h, err := l.reads.take(ctx, false)
		if errors.Is(err, lock.ErrHeld) {
			return nil
		}
		if err == nil {
			err = errors.Join(errors.New("one got in"), h.release(ctx))
		}
		return err
	})
	l.javaReads.says(t, true, "b", "tryLock")
	l.javaReads.call(t, "a", "unlock")
	began := time.Now()
	l.javaReads.call(t, "b", "unlock")
	g := awaitGrant(t, got)
	judgeWoken(t, g.at.Sub(began))
	release(t, g.held)
	release(t, tryLock(t, l.reads))
	l.leavesNothing(t)
}

//go:build interop

package interop_test

import (
	"testing"
	"time"
)

// testWatchdogs has each side keep one of every kind for two leases, while the other tries to get it all the time.
// What has no lease is left out, and what Redisson doesn't renew on its side.
func testWatchdogs(t *testing.T, r *rig) {
	type watch struct {
		*kind
		java                 ours
		goesThere, javaThere remote
		h                    held
		goLeast, javaLeast   time.Duration
	}
	var all []*watch
	for i := range kinds {
		k := &kinds[i]
		if k.bare {
			continue
		}
		w := &watch{kind: k, goLeast: lease, javaLeast: lease}
		goes, there := r.named(t, k, t.Name()+"/"+k.name+"/go")
		w.h, w.goesThere = tryLock(t, goes), there
		if k.isLock() {
			w.java, w.javaThere = r.named(t, k, t.Name()+"/"+k.name+"/java")
			w.javaThere.taken(t, "holder", 0)
		}
		all = append(all, w)
	}

	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for began := time.Now(); time.Since(began) < 2*lease; <-ticker.C {
		for _, w := range all {
			if _, ok := w.goesThere.try(t, "other"); ok {
				t.Fatalf("%s: Java has what lockdog keeps", w.name)
			}
			w.goLeast = min(w.goLeast, refused(t, w.rival(r, w.goesThere.name)).Remaining)
			if w.isLock() {
				w.goLeast = min(w.goLeast, w.goesThere.remaining(t))
				w.javaLeast = min(w.javaLeast, refused(t, w.java).Remaining)
			}
		}
	}
	for _, w := range all {
		t.Logf("%s: never less than %v of %v remained under lockdog's watchdog", w.name, w.goLeast.Round(time.Millisecond), lease)
		if w.goLeast <= 0 {
			t.Errorf("%s: lockdog's had no lease", w.name)
		}
		if err := w.h.Err(); err != nil {
			t.Errorf("%s: lockdog's lease: %v", w.name, err)
		}
		release(t, w.h)
		r.leavesNothing(t, w.kind, w.goesThere.name)
		if !w.isLock() {
			continue
		}
		t.Logf("%s: never less than %v under Redisson's", w.name, w.javaLeast.Round(time.Millisecond))
		if w.javaLeast <= 0 {
			t.Errorf("%s: Redisson's had no lease", w.name)
		}
		w.javaThere.says(t, true, "holder", "isHeldByCurrentThread")
		w.javaThere.call(t, "holder", "unlock")
		r.leavesNothing(t, w.kind, w.javaThere.name)
	}
}

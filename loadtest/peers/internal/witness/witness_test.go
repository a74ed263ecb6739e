package witness_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/peers/internal/witness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is two processes that share a witness.
func pair(t *testing.T) (a, b *witness.Witness) {
	t.Helper()
	name, err := witness.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var w [2]*witness.Witness
	for i := range w {
		var err error
		if w[i], err = witness.Open(name, i); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return w[0], w[1]
}

func TestTurns(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	at := func(ms int) time.Time { return time.Unix(1000, int64(ms)*1e6) }
	type turn struct {
		handed, between int64
		awaited         bool
		took            time.Duration // if awaited
	}
	for i, step := range []struct {
		w         *witness.Witness
		goroutine int
		began     int
		granted   int
		released  int
		want      turn
	}{
		{a, 0, 0, 1, 2, turn{}},                                       // the first
		{a, 0, 3, 4, 5, turn{}},                                       // itself again
		{a, 1, 4, 6, 7, turn{1, 0, true, time.Millisecond}},           // another here
		{b, 1, 3, 9, 11, turn{1, 1, true, 2 * time.Millisecond}},      // the same number there
		{a, 1, 12, 14, 15, turn{1, 1, false, 0}},                      // who came when it was free
		{b, 0, 1, 115, 116, turn{1, 1, true, 100 * time.Millisecond}}, // late
	} {
		tally, took, awaited := step.w.Granted(step.goroutine, at(step.began), at(step.granted))
		got := turn{tally.Handed, tally.Between, awaited, 0}
		if awaited {
			got.took = took
		}
		if got != step.want || tally.Operations != 1 {
			t.Errorf("step %d: %+v of %d operations, want %+v", i, got, tally.Operations, step.want)
		}
		step.w.Releasing(step.goroutine, at(step.released))
	}
	if n := a.Overlaps() + b.Overlaps(); n != 0 {
		t.Errorf("%d overlaps", n)
	}
}

// Two holders at a time are seen, whoever releases first.
func TestOverlap(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	now := time.Now()
	a.Granted(0, now, now)
	b.Granted(0, now, now)
	if n := a.Overlaps(); n != 1 {
		t.Errorf("%d overlaps, want 1", n)
	}
	a.Releasing(0, now)
	if n := b.Overlaps(); n != 2 {
		t.Errorf("%d overlaps, want 2", n)
	}
}

// A real lock between goroutines is not blamed; none is.
func TestUnderLoad(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	var mu sync.Mutex
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for range 2000 {
				began := time.Now()
				mu.Lock()
				a.Granted(g, began, time.Now())
				a.Releasing(g, time.Now())
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if n := a.Overlaps(); n != 0 {
		t.Errorf("%d overlaps under a lock", n)
	}
	for g := range 4 {
		all.Go(func() {
			for range 2000 {
				a.Granted(g, time.Now(), time.Now())
				time.Sleep(time.Microsecond)
				a.Releasing(g, time.Now())
			}
		})
	}
	all.Wait()
	if a.Overlaps() == 0 {
		t.Error("no overlap seen without a lock")
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := witness.Open(filepath.Join(dir, "none"), 0); err == nil {
		t.Error("opened what doesn't exist")
	}
	if _, err := witness.Create(filepath.Join(dir, "none")); err == nil {
		t.Error("created in a folder that doesn't exist")
	}
	one, err := witness.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := witness.Create(dir); err != nil || other == one {
		t.Errorf("created over what exists: %s, %s, %v", one, other, err)
	}
}

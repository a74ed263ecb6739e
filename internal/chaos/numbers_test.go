//go:build chaos

package chaos_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/lock"
)

// What has a number in Redis: semaphores, permits, latches. They are given their numbers before anything goes wrong, and are looked at
// when all is over.

// latches is how many a run has, one after the other. All workers count each of them down once.
const latches = 8

// giveNumbers gives a run's names theirs.
func (r *run) giveNumbers(t *testing.T) {
	t.Helper()
	f, _ := familyNamed(r.schedule.Family)
	if !f.counted {
		return
	}
	o := r.orders(0)
	o.Cluster = r.rig.cluster != nil // a failover cluster client would leave goroutines behind
	rdb := o.dial()
	locks, err := lock.New(rdb)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range r.schedule.Targets {
		if f.name == history.KindLatch {
			_, err = locks.Latch(target.Name).TrySetCount(t.Context(), r.schedule.parties())
		} else {
			_, err = setPermits(t.Context(), locks, target)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = rdb.Close()
}

// parties are all workers of a run.
func (s schedule) parties() int { return s.Clients * s.Workers }

func setPermits(ctx context.Context, c *lock.Client, t target) (bool, error) {
	if t.Family == history.KindSemaphore {
		return c.UnleasedSemaphore(t.Name).TrySetPermits(ctx, permits)
	}
	return c.Semaphore(t.Name).TrySetPermits(ctx, permits)
}

// keepPermits gives names their permits when Redis has forgotten that they have any, as every program does at its start.
func (c *client) keepPermits() (stop func()) {
	if c.Targets[0].Family != "permits" {
		return func() {}
	}
	return every(200*time.Millisecond, func(ctx context.Context) {
		for _, t := range c.Targets {
			// stop waits for a call, and doesn't cancel it: goroutines are counted afterwards.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			_, _ = setPermits(ctx, c.locks, t) // else the next time
			cancel()
		}
	})
}

// countNumbers notes what is left of all permits, once what clients have yet to clear up has had time for it.
func (r *run) countNumbers(t *testing.T) {
	t.Helper()
	f, _ := familyNamed(r.schedule.Family)
	if !f.counted || f.name == history.KindLatch {
		return
	}
	for _, target := range r.schedule.Targets {
		over := time.Now().Add(r.schedule.Lease + history.Grace)
		for {
			left, err := r.left(t, target.Name)
			if err != nil {
				t.Fatal(err)
			}
			if left == permits || time.Now().After(over) {
				r.note(history.Event{What: history.Left, Name: target.Name, Room: permits, Counts: map[string]float64{history.CountLeft: float64(left)}})
				break
			}
			time.Sleep(poll)
		}
	}
}

// left is how many permits are there, taken or not.
func (r *run) left(t *testing.T, name string) (int, error) {
	c := r.rig.admin(r.rig.victim(t, name))
	left, err := c.Get(t.Context(), name).Int()
	if err != nil {
		return 0, fmt.Errorf("the permits of %s: %w", name, err)
	}
	taken, err := c.ZCard(t.Context(), "{"+name+"}:timeout").Result()
	return left + int(taken), err
}

// takePermits is a worker's life with a semaphore.
func (w *worker) takePermits(t target, limit time.Duration) bool {
	w.n++
	id := fmt.Sprintf("%s.%d", w.id, w.n)
	n := 1 + w.rng.IntN(2)
	call := history.Event{
		What: history.Call, ID: id, Name: t.Name, Kind: history.KindSemaphore, How: "lock", Weight: n, Room: permits,
		Lease: w.c.Lease, Apart: true, Quick: w.c.settling.Load(),
	}
	s := w.c.locks.UnleasedSemaphore(t.Name)
	take := s.Acquire
	if limit == 0 && w.rng.IntN(4) == 0 {
		call.How, take = "try", s.TryAcquire
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	call.At = now()
	w.note(call)
	if err := take(ctx, n); err != nil {
		w.note(history.Event{At: now(), What: history.Refuse, ID: id, Why: why(ctx, err)})
		return false
	}
	w.note(history.Event{At: now(), What: history.Grant, ID: id})
	w.sleep(time.Duration(1+w.rng.IntN(25)) * time.Millisecond)
	at := now()
	w.note(history.Event{At: at, What: history.Live, ID: id})
	w.note(history.Event{At: at, What: history.Freeing, ID: id})
	err := w.give(func(ctx context.Context) error { return s.Release(ctx, n) })
	w.note(history.Event{At: now(), What: history.Freed, ID: id, Why: why(context.Background(), err)})
	return true
}

// give gives something back. What Redis doesn't answer the client goes on with; what it refuses, as long as it may not be done
// or has no room, is for us to repeat.
func (w *worker) give(do func(context.Context) error) error {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := do(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "OOM") {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// passLatch counts a latch down, and waits for it to be open.
func (w *worker) passLatch(t target) {
	parties := w.c.Parties
	w.note(history.Event{At: now(), What: history.Counted, Name: t.Name, Room: parties})
	l := w.c.locks.Latch(t.Name)
	_ = w.give(l.CountDown)
	for {
		w.n++
		id := fmt.Sprintf("%s.%d", w.id, w.n)
		w.note(history.Event{At: now(), What: history.Call, ID: id, Name: t.Name, Kind: history.KindLatch, How: "lock", Room: parties, Lease: w.c.Lease, Apart: true})
		err := l.Wait(context.Background())
		if err == nil {
			w.note(history.Event{At: now(), What: history.Grant, ID: id})
			return
		}
		w.note(history.Event{At: now(), What: history.Refuse, ID: id, Why: why(context.Background(), err)})
		time.Sleep(50 * time.Millisecond)
	}
}

// live is what a worker does with what has no lease, until it is time to settle.
func (w *worker) live() {
	switch w.c.Targets[0].Family {
	case history.KindSemaphore:
		for !w.c.settling.Load() {
			limit := time.Duration(0)
			if w.rng.IntN(4) == 0 {
				limit = time.Duration(20+w.rng.IntN(1000)) * time.Millisecond
			}
			if w.takePermits(w.c.Targets[w.rng.IntN(len(w.c.Targets))], limit) {
				w.c.granted()
			}
			w.sleep(time.Duration(w.rng.IntN(10)) * time.Millisecond)
		}
		for _, t := range w.c.Targets {
			for !w.takePermits(t, 0) {
				time.Sleep(50 * time.Millisecond)
			}
		}
	case history.KindLatch:
		w.c.granted()
		for _, t := range w.c.Targets {
			w.sleep(time.Duration(w.rng.IntN(600)) * time.Millisecond)
			w.passLatch(t)
		}
	}
}

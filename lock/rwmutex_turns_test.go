package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Read-write locks under load.

// turnsOf takes a lock again and again, on n goroutines, until ctx ends.
func turnsOf(ctx context.Context, t *testing.T, all *sync.WaitGroup, lk lock.Locker, n int, hold func(*lock.Lease)) {
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := lk.Lock(context.Background())
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				hold(l)
				if err := l.Release(context.Background()); err != nil {
					t.Errorf("Release: %v", err)
					return
				}
			}
		})
	}
}

// Readers that overlap without a gap don't starve a writer.
func TestRWReadersDontStarveWriters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var all sync.WaitGroup
		var inside, gaps, reads atomic.Int64
		gaps.Store(-1) // there was nobody before the first
		for range 3 {
			turnsOf(ctx, t, &all, r.client().RWMutex("job").RLocker(), 3, func(*lock.Lease) {
				if inside.Add(1) == 1 {
					gaps.Add(1)
				}
				reads.Add(1)
				pause(4 * time.Millisecond)
				inside.Add(-1)
			})
		}
		eventually(t, patience, func() bool { return reads.Load() > 50 })
		alone := gaps.Load()
		w := r.client().RWMutex("job")
		var longest time.Duration
		for range 10 {
			began := time.Now()
			l := granted(t, begin(r.ctx(), w))
			longest = max(longest, time.Since(began))
			free(t, l)
			before := reads.Load()
			eventually(t, patience, func() bool { return reads.Load() > before+5 })
		}
		stop()
		all.Wait()
		if longest > 50*time.Millisecond { // each read takes 4
			t.Errorf("a writer waited for %v", longest)
		}
		t.Logf("10 writes beside %d reads; the longest wait was %v; alone, the readers left %d gaps", reads.Load(), longest, alone)
	})
}

// Nor do writers without end starve readers.
func TestRWWritersDontStarveReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var all sync.WaitGroup
		var writes atomic.Int64
		for range 2 {
			turnsOf(ctx, t, &all, r.client().RWMutex("job"), 2, func(*lock.Lease) {
				writes.Add(1)
				pause(time.Millisecond)
			})
		}
		eventually(t, patience, func() bool { return writes.Load() > 20 })
		readers := r.client().RWMutex("job").RLocker()
		var longest time.Duration
		for range 10 {
			began := time.Now()
			var five sync.WaitGroup
			for range 5 {
				five.Go(func() {
					if err := readers.Do(r.ctx(), func(context.Context, *lock.Lease) error { return nil }); err != nil {
						t.Errorf("Do: %v", err)
					}
				})
			}
			in := make(chan struct{})
			go func() {
				defer close(in)
				five.Wait()
			}()
			await(t, "five readers", in)
			longest = max(longest, time.Since(began))
		}
		stop()
		all.Wait()
		if longest > time.Second { // each write takes 1 ms
			t.Errorf("five readers waited for %v", longest)
		}
		t.Logf("50 reads beside %d writes; the longest wait of five was %v", writes.Load(), longest)
	})
}

// pause is for holds in a load.
func pause(d time.Duration) { <-time.After(d) }

// Two processes of readers and writers: no writer is ever with anybody else.
func TestRWTwoProcesses(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	procs := []*child{startChild(t, "read-write", srv.Addr(), "-"), startChild(t, "read-write", srv.Addr(), "-")}
	for _, ch := range procs {
		ch.expect(t, "ready")
	}
	for _, ch := range procs {
		if _, err := fmt.Fprintln(ch.stdin, "go"); err != nil {
			t.Fatal(err)
		}
	}
	type rwTurn struct {
		turn
		writes bool
	}
	var turns []rwTurn
	for i, ch := range procs {
		for line := range ch.lines {
			tn := rwTurn{turn: turn{process: i}}
			if _, err := fmt.Sscan(line, &tn.writes, &tn.goroutine, &tn.token, &tn.start, &tn.end); err != nil {
				t.Fatalf("the child says %q", line)
			}
			turns = append(turns, tn)
		}
		ch.wait(t)
	}
	slices.SortFunc(turns, func(a, b rwTurn) int { return int(a.start - b.start) })
	var last, writer turn // who ended last so far, of all and of the writers
	var token int64       // the largest so far
	writes, together := [2]int{}, 0
	for _, tn := range turns {
		switch {
		case tn.writes && tn.start < last.end:
			t.Errorf("writer %+v was in with %+v", tn, last)
		case !tn.writes && tn.start < writer.end:
			t.Errorf("reader %+v was in with writer %+v", tn, writer)
		case tn.writes && tn.token <= token, !tn.writes && tn.token <= writer.token:
			t.Errorf("token of %+v; it came after %d and %d", tn, token, writer.token)
		}
		if !tn.writes && tn.start < last.end {
			together++
		}
		if tn.writes {
			writes[tn.process]++
			writer = tn.turn
		}
		if tn.end > last.end {
			last = tn.turn
		}
		token = max(token, tn.token)
	}
	if writes[0] == 0 || writes[1] == 0 || together == 0 {
		t.Errorf("%v writes of the processes, %d reads beside others; want some of each", writes, together)
	}
	t.Logf("%d turns, %v writes of the processes, %d reads beside others", len(turns), writes, together)
}

// childReadWrite takes both sides of a lock again and again on many goroutines.
func childReadWrite(addr, _ string, say func(string, ...any)) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	c, err := lock.New(rdb, lock.WithWatchdog(2*time.Second))
	if err != nil {
		return err
	}
	defer closeSoon(c)
	say("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var lines []string // said at the end: whoever reads them mustn't hold up a holder
	errs := make(chan error, 12)
	for g := range cap(errs) {
		lk, writes := lock.Locker(c.RWMutex("job")), g%3 == 0
		if !writes {
			lk = c.RWMutex("job").RLocker()
		}
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := lk.Lock(context.Background())
				if err != nil {
					errs <- err
					return
				}
				if tn := hold(l); tn.start > 0 {
					mu.Lock()
					lines = append(lines, fmt.Sprint(writes, g, tn.token, int64(tn.start), int64(tn.end)))
					mu.Unlock()
				}
				if err := l.Release(context.Background()); err != nil && !errors.Is(err, lock.ErrLost) {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	for _, line := range lines {
		say("%s", line)
	}
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

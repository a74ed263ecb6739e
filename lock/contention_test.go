package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// The whole of the lock under load: two processes, 32 goroutines each, one name.

const contenders = 32

// contendFor returns how long at least. They go on until each has had the lock, for 5 minutes at most.
func contendFor() time.Duration {
	if lock.Full {
		return 10 * time.Second
	}
	return time.Second
}

// turn is one hold: the lease's context was live at both ends, so at all times between.
type turn struct {
	process, goroutine int
	token              int64
	asked, start, end  time.Duration // by machineTime
}

func TestTwoProcessesTakeTurns(t *testing.T) {
	for _, k := range allKinds {
		if k.shared {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			takeTurns(t, k)
		})
	}
}

func takeTurns(t *testing.T, k kindOfLock) {
	srv := redistest.Start(t)
	var procs [2]*child
	for i := range procs {
		procs[i] = startChild(t, "contender", srv.Addr(), k.name)
	}
	for _, ch := range procs {
		ch.expect(t, "ready")
	}
	for _, ch := range procs {
		ch.tell(t, "go")
	}
	for _, ch := range procs {
		if line := <-ch.lines; line != "served" {
			t.Fatalf("the child says %q", line)
		}
	}
	for _, ch := range procs {
		ch.tell(t, "stop")
	}
	var turns []turn
	for i, ch := range procs {
		for line := range ch.lines {
			tn := turn{process: i}
			if _, err := fmt.Sscan(line, &tn.goroutine, &tn.token, &tn.asked, &tn.start, &tn.end); err != nil {
				t.Fatalf("the child says %q", line)
			}
			turns = append(turns, tn)
		}
		ch.wait(t)
	}
	judge(t, turns)
}

// judge checks what the holders noted.
func judge(t *testing.T, turns []turn) {
	t.Helper()
	slices.SortFunc(turns, func(a, b turn) int { return int(a.start - b.start) })
	served := make(map[[2]int]int)
	between := 0
	var longest time.Duration
	for i, tn := range turns {
		served[[2]int{tn.process, tn.goroutine}]++
		longest = max(longest, tn.start-tn.asked)
		if i == 0 {
			continue
		}
		last := turns[i-1]
		if tn.start < last.end {
			t.Errorf("two held it at once: %+v and %+v", last, tn)
		}
		if tn.token <= last.token {
			t.Errorf("the token fell from %d to %d", last.token, tn.token)
		}
		if tn.process != last.process {
			between++
		}
	}
	least := len(turns)
	for p := range 2 {
		for g := range contenders {
			n := served[[2]int{p, g}]
			if n == 0 {
				t.Errorf("goroutine %d of process %d never had the lock", g, p)
			}
			least = min(least, n)
		}
	}
	if len(turns) == 0 {
		t.Fatal("nobody ever had the lock")
	}
	span := (turns[len(turns)-1].end - turns[0].start).Seconds()
	t.Logf("%d holds in %.1f s: %.0f handoffs/s, %.0f/s of them between the processes; the least served goroutine had %d, the longest wait took %v",
		len(turns), span, float64(len(turns))/span, float64(between)/span, least, longest)
}

// childContender takes the lock again and again on many goroutines.
func childContender(addr, kind string, say func(string, ...any)) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	// The shorter the lease, the more often a lock is near its end, and so the more can go wrong.
	c, err := lock.New(rdb, lock.WithLease(500*time.Millisecond))
	if err != nil {
		return err
	}
	defer closeSoon(c)
	say("ready")
	told := bufio.NewReader(os.Stdin)
	if _, err := told.ReadString('\n'); err != nil {
		return err
	}
	k := allKinds[slices.IndexFunc(allKinds, func(k kindOfLock) bool { return k.name == kind })]
	turns, err := contend(k.make(c, "contended"), contendFor(), func() {
		say("served")
		_, _ = told.ReadString('\n') // its end says so, too
	})
	for _, tn := range turns {
		say("%d %d %d %d %d", tn.goroutine, tn.token, tn.asked, tn.start, tn.end)
	}
	return err
}

// contend goes on for d, until each goroutine has had the lock, and then until served returns.
func contend(m lock.Locker, d time.Duration, served func()) ([]turn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var (
		wg    sync.WaitGroup
		first sync.WaitGroup // a turn of each
		mu    sync.Mutex
		turns []turn
		errs  []error
	)
	first.Add(contenders)
	go func() {
		time.Sleep(d)
		first.Wait()
		served()
		cancel()
	}()
	for g := range contenders {
		wg.Go(func() {
			had := sync.OnceFunc(first.Done)
			defer had()
			for ctx.Err() == nil {
				asked := machineTime()
				l, err := m.Lock(ctx)
				if unanswered(err) && ctx.Err() == nil {
					continue
				}
				if err != nil {
					if ctx.Err() == nil {
						mu.Lock()
						errs = append(errs, err)
						mu.Unlock()
					}
					return
				}
				if tn := hold(l); tn.start > 0 {
					had()
					tn.goroutine, tn.asked = g, asked
					mu.Lock()
					turns = append(turns, tn)
					mu.Unlock()
				}
				if err := l.Release(context.Background()); err != nil && !errors.Is(err, lock.ErrLost) && !unanswered(err) {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return turns, errors.Join(errs...)
}

// unanswered reports whether Redis hasn't answered for a lease, half a second: a busy machine may be so slow.
func unanswered(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// hold notes from when to when the lease's context was surely live; nothing if it never was.
func hold(l *lock.Lease) turn {
	work := l.Context()
	start := machineTime()
	if work.Err() != nil {
		return turn{}
	}
	end := start
	for range 1 + l.Token()%4 { // long and short holds
		runtime.Gosched()
		now := machineTime()
		if work.Err() != nil {
			break
		}
		end = now
	}
	return turn{token: l.Token(), start: start, end: end}
}

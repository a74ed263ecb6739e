package lock

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// sweeper removes what a bid may have left in Redis when nobody waits for its answer any more: the caller's
// ctx ended while the acquire was under way, an answer was lost, a release failed, or a lease was lost
// while its entry may live on. It releases, checked against the owner, and once more when no
// delayed call can take the lock any more.
//
// It runs one goroutine, and that only while there is something to sweep.
type sweeper struct {
	t      *transport
	closed chan struct{}

	mu      sync.Mutex
	running bool
	wake    chan struct{}
	tasks   sweeps
	done    sync.WaitGroup
}

// sweep is one entry to be removed.
type sweep struct {
	bid    bid
	due    time.Time
	ghosts time.Time // after it no delayed call of the bid can write
	until  time.Time // after it Redis has let the entry expire
	tries  int
	index  int // in sweeps
}

// sweeps is a heap, the next on top: an outage may leave thousands.
type sweeps []*sweep

func (s sweeps) Len() int           { return len(s) }
func (s sweeps) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s sweeps) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *sweeps) Push(x any) {
	task := x.(*sweep)
	task.index = len(*s)
	*s = append(*s, task)
}

func (s *sweeps) Pop() any {
	last := len(*s) - 1
	task := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return task
}

const sweepTimeout = time.Second

func newSweeper(t *transport) *sweeper {
	return &sweeper{t: t, closed: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// add sweeps now, and once more when no delayed call of the bid can write any more, if that is later.
func (s *sweeper) add(b *bid, ghosts time.Time) { s.at(time.Now(), b, ghosts) }

// at is add, starting at due.
func (s *sweeper) at(due time.Time, b *bid, ghosts time.Time) {
	last := ghosts
	if due.After(last) {
		last = due
	}
	task := &sweep{bid: bid{place: b.place, owner: b.owner}, due: due, ghosts: ghosts, until: last.Add(b.lease)}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return
	default:
	}
	heap.Push(&s.tasks, task)
	if !s.running {
		s.running = true
		s.done.Add(1)
		go s.run()
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close drops what is left: Redis lets it expire.
func (s *sweeper) close() {
	s.mu.Lock()
	close(s.closed)
	s.mu.Unlock()
	s.done.Wait()
}

func (s *sweeper) run() {
	defer s.done.Done()
	for {
		s.mu.Lock()
		if len(s.tasks) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		next := s.tasks[0]
		s.mu.Unlock()

		if wait := time.Until(next.due); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-s.wake:
				timer.Stop()
				continue
			case <-s.closed:
				timer.Stop()
				return
			}
		}
		select {
		case <-s.closed:
			return
		default:
		}
		s.sweep(next)
	}
}

// sweep tries once, and again later unless that was the end of it.
func (s *sweeper) sweep(task *sweep) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
	defer cancel()
	now := time.Now()
	_, err := s.t.releaseOnce(ctx, &task.bid, sweepTimeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	swept := err == nil && !now.Before(task.ghosts)
	if err == nil {
		task.due, task.tries = task.ghosts, 0
	} else {
		task.tries++
		task.due = time.Now().Add(backoff(task.tries))
	}
	if swept || task.due.After(task.until) {
		heap.Remove(&s.tasks, task.index)
	} else {
		heap.Fix(&s.tasks, task.index)
	}
}

// drain waits until nothing is due, or ctx ends.
func (s *sweeper) drain(ctx context.Context) {
	for s.pending(time.Now()) && sleep(ctx, firstBackoff) {
	}
}

func (s *sweeper) pending(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks) > 0 && !s.tasks[0].due.After(now)
}

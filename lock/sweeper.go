package lock

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// sweepers remove what a bid may have left in Redis when nobody waits for its answer any more: the caller's
// ctx ended while the acquire was under way, an answer was lost, a release failed, or a lease was lost
// while its entry may live on. They release, checked against the owner, and once more when no
// delayed call can take the lock any more.
//
// Each node has its own, so that one that hangs delays no other's.
type sweepers struct {
	t *transport

	mu     sync.Mutex
	byNode map[string]*sweeper
	closed bool
}

func newSweepers(t *transport) *sweepers {
	return &sweepers{t: t, byNode: make(map[string]*sweeper)}
}

// add sweeps now, and once more when no delayed call of the bid can write any more, if that is later.
func (ss *sweepers) add(b *bid, ghosts time.Time) { ss.at(time.Now(), b, ghosts) }

// try sweeps what a refused call may have left, but for a refusal doesn't try again.
func (ss *sweepers) try(b *bid) { ss.schedule(time.Now(), b, time.Time{}, true) }

// at is add, starting at due.
func (ss *sweepers) at(due time.Time, b *bid, ghosts time.Time) { ss.schedule(due, b, ghosts, false) }

func (ss *sweepers) schedule(due time.Time, b *bid, ghosts time.Time, refused bool) {
	if b.lock.kind.release == nil { // it leaves nothing
		return
	}
	last, patience := ghosts, b.lock.cfg.lease
	if b.lock.kind.counts {
		patience = receiptPatience
	}
	if due.After(last) {
		last = due
	}
	task := &sweep{bid: bid{lock: b.lock, owner: b.owner}, due: due, ghosts: ghosts, until: last.Add(patience), refused: refused}
	node := ss.t.backend.Node(b.lock.key)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.closed {
		return
	}
	s := ss.byNode[node]
	if s == nil {
		s = &sweeper{t: ss.t, closed: make(chan struct{}), wake: make(chan struct{}, 1)}
		ss.byNode[node] = s
	}
	s.add(task)
}

// close drops what is left: Redis lets it expire.
func (ss *sweepers) close() {
	ss.mu.Lock()
	ss.closed = true
	all := ss.byNode
	ss.mu.Unlock()
	for _, s := range all {
		close(s.closed)
	}
	for _, s := range all {
		s.done.Wait()
	}
}

// drain waits until nothing is due, or ctx ends.
func (ss *sweepers) drain(ctx context.Context) {
	for ss.pending(time.Now()) && redisfail.Sleep(ctx, 10*time.Millisecond) {
	}
}

func (ss *sweepers) pending(now time.Time) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range ss.byNode {
		if s.pending(now) {
			return true
		}
	}
	return false
}

// sweeper is the sweeper of one node. It runs one goroutine, and that only while there is something to sweep.
type sweeper struct {
	t      *transport
	closed chan struct{}

	mu      sync.Mutex
	running bool
	wake    chan struct{}
	tasks   sweepHeap
	done    sync.WaitGroup
}

// sweep is one entry to be removed.
type sweep struct {
	bid    bid
	due    time.Time
	ghosts time.Time // after it no delayed call of the bid can write
	until  time.Time // after it Redis has let the entry expire, or nobody knows any more what was done
	tries  int
	index  int // in sweepHeap

	refused bool // as the bid was: another refusal is the last
}

// sweepHeap has the next on top: an outage may leave thousands.
type sweepHeap []*sweep

func (s sweepHeap) Len() int           { return len(s) }
func (s sweepHeap) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s sweepHeap) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *sweepHeap) Push(x any) {
	task := x.(*sweep)
	task.index = len(*s)
	*s = append(*s, task)
}

func (s *sweepHeap) Pop() any {
	last := len(*s) - 1
	task := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return task
}

const (
	sweepTimeout = time.Second
	sweepRefused = 5 * time.Second      // before what was refused is tried again
	sweepSpacing = 2 * time.Millisecond // between tasks that have failed: there may be thousands, and a Redis in trouble has enough of it
)

func (s *sweeper) add(task *sweep) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	ctx, cancel := context.WithTimeout(telemetry.Untraced(context.Background()), sweepTimeout)
	defer cancel()
	now := time.Now()
	_, err := s.t.releaseOnce(ctx, &task.bid, sweepTimeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	if redisfail.IsWrongType(err) { // nothing of ours is in there
		err = nil
	}
	swept := err == nil && !now.Before(task.ghosts) || task.refused && err != nil && !redisfail.Classify(err).Retry
	if err == nil {
		task.due, task.tries = task.ghosts, 0
	} else {
		task.tries++
		pause := redisfail.Backoff(task.tries)
		if !redisfail.Classify(err).Retry {
			pause = sweepRefused/2 + rand.N(sweepRefused)
		}
		task.due = time.Now().Add(pause + time.Duration(len(s.tasks))*sweepSpacing)
	}
	if swept || task.due.After(task.until) {
		heap.Remove(&s.tasks, task.index)
	} else {
		heap.Fix(&s.tasks, task.index)
	}
}

func (s *sweeper) pending(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks) > 0 && !s.tasks[0].due.After(now)
}

// Package cleanup removes entries that may be left in Redis: for example after an acquire whose caller got no reply,
// after a failed release, and after the loss of a lease. It also repeats failed changes of counters, and makes sure
// that a lock stays taken for as long as it is to. A task is repeated until it succeeds after the last moment at which
// a delayed call can still write, or until its Timeout is over: the entry has then expired in Redis. Task.RefusedOnce
// and Close end tasks earlier.
//
// Each node has its own queue, so that a node that hangs delays no other.
package cleanup

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// Timeout bounds one run of a task. go-redis may notice the timeout only after its ReadTimeout.
const Timeout = time.Second

const (
	refusedPause = 5 * time.Second      // on average, before a task that was refused runs again
	taskSpacing  = 2 * time.Millisecond // more pause per queued task: after an outage there may be thousands of them
)

// Task removes an entry from Redis.
type Task struct {
	Node           string                          // the server of the entry; its tasks run one after the other
	Remove         func(ctx context.Context) error // in one try
	Due            time.Time                       // when the next run is due
	LateWriteUntil time.Time                       // a delayed call may write the entry until then; zero: none can
	Timeout        time.Duration                   // how long to go on after the later of Due and LateWriteUntil
	RefusedOnce    bool                            // the write was refused: give up if the removal is refused, too
	Ended          func()                          // called at the end, unless Close ends it; nil: nothing is

	until time.Time // max(Due, LateWriteUntil) + Timeout
	tries int       // how many have failed since the last success
	index int       // in taskHeap
}

// Cleaner runs tasks in the background. It is safe for concurrent use.
type Cleaner struct {
	mu     sync.Mutex
	byNode map[string]*queue
	gaveUp <-chan struct{} // closed when Close no longer waits; nil: Close wasn't called
}

// New returns a Cleaner without tasks.
func New() *Cleaner { return &Cleaner{byNode: make(map[string]*queue)} }

// Add schedules a task. After Close nobody waits for it. Once Close has given up, it is dropped unless it is due.
func (c *Cleaner) Add(t *Task) {
	last := t.LateWriteUntil
	if t.Due.After(last) {
		last = t.Due
	}
	t.until = last.Add(t.Timeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.byNode[t.Node]
	if q == nil {
		q = &queue{wake: make(chan struct{}, 1), gaveUp: c.gaveUp}
		c.byNode[t.Node] = q
	}
	q.add(t)
}

// Close runs each task once more and waits for that. Until ctx ends, it also waits until no delayed call can write any
// more. If a task fails, all tasks of its node are dropped: Redis lets their entries expire.
func (c *Cleaner) Close(ctx context.Context) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	c.mu.Lock()
	all := c.byNode
	c.byNode, c.gaveUp = make(map[string]*queue), ctx.Done()
	c.mu.Unlock()
	for _, q := range all {
		q.close(ctx.Done())
	}
	for _, q := range all {
		q.done.Wait()
	}
}

// queue has the tasks of one node. Its goroutine runs only while there are any.
type queue struct {
	wake chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	running bool
	tasks   taskHeap
	gaveUp  <-chan struct{} // see Cleaner
}

func (q *queue) add(t *Task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	heap.Push(&q.tasks, t)
	if !q.running {
		q.running = true
		q.done.Go(q.run)
		return
	}
	q.look()
}

// look makes run check again which task is next.
func (q *queue) look() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close makes all tasks due.
func (q *queue) close(gaveUp <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gaveUp = gaveUp
	for _, t := range q.tasks {
		t.Due = time.Now()
	}
	q.look()
}

// drop drops all tasks if none is due.
func (q *queue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tasks) > 0 && q.tasks[0].Due.After(time.Now()) {
		q.tasks = nil
	}
}

// run runs each task when it is due, until there are none.
func (q *queue) run() {
	for {
		q.mu.Lock()
		if len(q.tasks) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		next, gaveUp := q.tasks[0], q.gaveUp
		wait := time.Until(next.Due)
		q.mu.Unlock()

		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-q.wake:
				timer.Stop()
				continue
			case <-gaveUp:
				timer.Stop()
				q.drop()
				continue
			}
		}
		if q.isOver(next) {
			continue
		}
		q.try(next, gaveUp != nil)
	}
}

// isOver drops a task whose time is over, and reports whether it did. If a node hangs and has many tasks, the next run
// of a task may come so late that a receipt that it needs has expired.
func (q *queue) isOver(t *Task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !time.Now().After(t.until) {
		return false
	}
	q.end(t)
	return true
}

// end removes a task. mu must be held.
func (q *queue) end(t *Task) {
	heap.Remove(&q.tasks, t.index)
	if t.Ended != nil {
		t.Ended()
	}
}

// try runs a task once, and schedules it again unless it is finished or its time is over. closing: Close was called
// before the run; then a failure drops all tasks of the node. If Close was called during the run, the task runs again.
func (q *queue) try(t *Task, closing bool) {
	ctx, cancel := context.WithTimeout(telemetry.Untraced(context.Background()), Timeout)
	defer cancel()
	began := time.Now()
	err := t.Remove(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if redisfail.IsWrongType(err) { // the key isn't lockdog's
		err = nil
	}
	finished := false
	if err == nil {
		finished = !began.Before(t.LateWriteUntil)
		t.Due, t.tries = t.LateWriteUntil, 0
	} else {
		t.tries++
		pause := redisfail.Backoff(t.tries)
		if !redisfail.Classify(err).Retry {
			finished = t.RefusedOnce
			pause = refusedPause/2 + rand.N(refusedPause)
		}
		t.Due = time.Now().Add(pause + time.Duration(len(q.tasks))*taskSpacing)
	}
	switch {
	case q.gaveUp != nil && !closing: // Close was called during the run: run again, for what was written meanwhile
		t.Due = time.Now()
		heap.Fix(&q.tasks, t.index)
	case closing && err != nil:
		q.tasks = nil
	case finished, t.Due.After(t.until):
		q.end(t)
	default:
		heap.Fix(&q.tasks, t.index)
	}
}

// taskHeap has the task that is due first on top.
type taskHeap []*Task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].Due.Before(h[j].Due) }
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *taskHeap) Push(x any) {
	t := x.(*Task)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *taskHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}

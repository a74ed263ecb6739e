//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/lock"
)

// worker takes locks, one at a time.
type worker struct {
	c       *client
	id      string
	n       int
	rng     *rand.Rand
	store   *storeClient
	renewed bool     // the last lease was, at least once
	tries   bool     // it asks for all of them and doesn't wait: whoever waits learns late of a lock that Redis has forgotten
	mine    []target // what it takes while there are faults: else all would soon wait for those that are held for long
}

func newWorker(c *client, i int) (*worker, error) {
	w := &worker{c: c, id: fmt.Sprintf("%d.%d", c.Proc, i), rng: rand.New(rand.NewPCG(c.Seed, uint64(c.Proc<<8+i)))}
	w.tries = i == 1
	for _, t := range c.Targets {
		if w.tries || t.Long == (i == 0) {
			w.mine = append(w.mine, t)
		}
	}
	var err error
	w.store, err = dialStore(c.Store)
	return w, err
}

// job is one lock to be taken, and what to do then.
type job struct {
	target  target
	kind    kind
	how     string // lock, wait or try
	wait    time.Duration
	limit   time.Duration // of the ctx given to Lock, 0: none
	opts    []lock.LockOption
	fixed   bool
	lease   time.Duration
	hold    time.Duration
	lazy    bool          // waits for Done rather than looking
	cancel  time.Duration // after this the ctx is canceled, 0: never
	careful bool          // goes on after Settle, until it was renewed once
}

// run works until it has been told to settle, and then takes each name once more.
func (w *worker) run() {
	defer func() { _ = w.store.conn.Close() }() // the store has all it was told
	for !w.c.settling.Load() {
		if w.do(w.choose()) {
			w.c.granted()
		} else {
			w.sleep(time.Duration(5+w.rng.IntN(30)) * time.Millisecond)
		}
	}
	for _, t := range w.c.Targets {
		w.insist(job{target: t, kind: w.kindOf(t), how: "lock", lease: w.c.Lease, hold: 2 * time.Millisecond})
	}
	own := target{Name: fmt.Sprintf("own:%s", w.id), Family: "mutex"}
	for w.id == fmt.Sprintf("%d.0", w.c.Proc) && !w.renewed {
		w.insist(job{target: own, kind: w.kindOf(own), how: "lock", lease: w.c.Lease, hold: w.c.Lease, careful: true})
	}
}

// insist does a job until it was given its lock.
func (w *worker) insist(j job) {
	for !w.do(j) {
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *worker) kindOf(t target) kind {
	all := ofFamily(t.Family)
	return all[w.rng.IntN(len(all))]
}

// choose makes up the next job.
func (w *worker) choose() job {
	t := w.mine[w.rng.IntN(len(w.mine))]
	j := job{target: t, kind: w.kindOf(t), how: "lock", lease: w.c.Lease}
	j.hold = time.Duration(1+w.rng.IntN(25)) * time.Millisecond
	switch w.rng.IntN(10) {
	case 0, 1:
		j.how = "try"
	case 2, 3:
		j.how, j.wait = "wait", time.Duration(w.rng.IntN(500))*time.Millisecond
		j.opts = append(j.opts, lock.WithWait(j.wait))
	case 4:
		j.limit = time.Duration(20+w.rng.IntN(3000)) * time.Millisecond
	}
	if w.tries && w.rng.IntN(10) > 0 {
		j.how, j.opts, j.limit = "try", nil, 0
	}
	if t.Long && w.rng.IntN(4) == 0 {
		j.hold = time.Duration((0.5 + 1.2*w.rng.Float64()) * float64(j.lease))
		j.lazy = w.rng.IntN(3) == 0
	}
	switch w.rng.IntN(12) {
	case 0:
		j.fixed, j.lease = true, time.Duration(200+w.rng.IntN(800))*time.Millisecond
		j.opts = append(j.opts, lock.WithFixedLease(j.lease))
	case 1:
		j.cancel = j.hold / 2
	case 2:
		j.opts = append(j.opts, lock.WithMaxHold(j.lease/2))
	case 3:
		j.opts = append(j.opts, lock.WithHeartbeat(j.lease/2))
	}
	return j
}

// sleep is cut short when it is time to settle.
func (w *worker) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.c.settle:
	}
}

func (w *worker) note(e history.Event) { w.c.diary.note(e) }

// do takes the lock, holds it and gives it back. It says whether it was given it.
func (w *worker) do(j job) bool {
	w.n++
	id := fmt.Sprintf("%s.%d", w.id, w.n)
	l := j.kind.locker(w.c.locks, j.target.Name, j.opts...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if j.limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, j.limit)
		defer cancel()
	}
	w.note(history.Event{
		At: now(), What: history.Call, ID: id, Name: j.target.Name, Kind: j.kind.name, How: j.how,
		Weight: j.kind.weight, Room: j.kind.room, Lease: j.lease, Fixed: j.fixed, Quick: w.c.settling.Load(),
	})
	take := l.Lock
	if j.how == "try" {
		take = l.TryLock
	}
	lease, err := take(ctx)
	at := now()
	if err != nil {
		w.note(history.Event{At: at, What: history.Refuse, ID: id, Why: why(ctx, err)})
		return false
	}
	w.note(history.Event{At: at, What: history.Grant, ID: id, Owner: lease.Owner(), Token: lease.Token(), Until: onClock(lease.Deadline())})
	if j.cancel > 0 {
		timer := time.AfterFunc(j.cancel, cancel)
		defer timer.Stop()
	}
	h := &holding{w: w, id: id, lease: lease, ctx: lease.Context(), job: j}
	h.hold()
	w.renewed = h.renewed
	return true
}

// why names an error of Lock or Release.
func why(ctx context.Context, err error) string {
	var lost *lock.LostError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &lost):
		return history.WhyLost + ":" + string(lost.Cause)
	case errors.Is(err, lock.ErrClosed):
		return history.WhyClosed
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return history.WhyContext + ":deadline"
	case ctx.Err() != nil:
		return history.WhyContext
	case errors.Is(err, lock.ErrReleased):
		return history.WhyReleased
	case errors.Is(err, lock.ErrHeld):
		return history.WhyHeld
	default:
		return history.WhyError + fmt.Sprintf("%.160s", err)
	}
}

// whyEnded names the cause of a Lease.Context's end.
func whyEnded(err error) string {
	var canceled *lock.CanceledError
	if errors.As(err, &canceled) {
		return history.WhyCanceled + ":" + string(canceled.Reason)
	}
	return why(context.Background(), err)
}

//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/lock"
)

// worker takes locks, one at a time.
type worker struct {
	c       *client
	family  family
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
	w.family, _ = familyNamed(c.Targets[0].Family)
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
	within  *holding      // the lock that is held meanwhile, nil: none
	inner   *job          // to be done before the work
}

// run works until it has been told to settle, and then takes each name once more; of latches, it passes each one once.
// Finally, the first worker of each process holds a lock that no other worker wants until its lease has been renewed.
func (w *worker) run() {
	defer func() { _ = w.store.conn.Close() }() // the store has all it was told
	own := w.own()
	if w.family.numbers {
		w.live()
		w.insist(own)
	} else {
		w.contend()
	}
	own.hold, own.careful = w.c.Lease, true
	for w.first() && !w.renewed {
		w.insist(own)
	}
}

// first reports whether this is the first worker of its process.
func (w *worker) first() bool { return w.id == fmt.Sprintf("%d.0", w.c.Proc) }

// own is a job that takes a lock that no other worker wants.
func (w *worker) own() job {
	return job{target: target{Name: "own:" + w.id}, kind: families[0].kinds[0], how: "lock", lease: w.c.Lease, hold: 2 * time.Millisecond}
}

// contend takes locks until it is time to settle, and then each name once more.
func (w *worker) contend() {
	for !w.c.settling.Load() {
		if w.tries && w.c.Forces && w.family.force != nil && w.rng.IntN(60) == 0 {
			w.force(w.mine[w.rng.IntN(len(w.mine))])
		}
		j := w.choose()
		if w.c.Nests != "" && w.rng.IntN(6) == 0 {
			j = w.nested()
		}
		if w.do(j) {
			w.c.granted()
		} else {
			w.sleep(time.Duration(5+w.rng.IntN(30)) * time.Millisecond)
		}
	}
	for _, t := range w.c.Targets {
		w.insist(job{target: t, kind: w.kind(), how: "lock", lease: w.c.Lease, hold: 2 * time.Millisecond})
	}
}

// force takes a lock away from whoever has it.
func (w *worker) force(t target) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	since := now()
	was, err := w.family.force(w.c.locks, t.Name)(ctx)
	e := history.Event{At: now(), What: history.Forced, Name: t.Name, Since: since, Why: strconv.FormatBool(was)}
	if err != nil {
		e.Why = why(ctx, err)
	}
	w.note(e)
}

// insist does a job until it was given its lock.
func (w *worker) insist(j job) {
	for !w.do(j) {
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *worker) kind() kind { return w.family.kinds[w.rng.IntN(len(w.family.kinds))] }

// choose makes up the next job.
func (w *worker) choose() job {
	if w.c.Agent != "" && w.first() && w.rng.IntN(2) == 0 { // so that it has something to renew
		j := w.own()
		j.hold = time.Duration((0.5 + 1.2*w.rng.Float64()) * float64(j.lease))
		return j
	}
	t := w.mine[w.rng.IntN(len(w.mine))]
	j := job{target: t, kind: w.kind(), how: "lock", lease: w.c.Lease}
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
	if t.Long && w.rng.IntN(4) == 0 && !w.c.Stale {
		j.hold = time.Duration((0.5 + 1.2*w.rng.Float64()) * float64(j.lease))
		j.lazy = w.rng.IntN(3) == 0
	}
	if w.c.Stale && t.Long && !w.tries && w.c.holds.Load() {
		return job{target: t, kind: j.kind, how: "lock", lease: j.lease, hold: 3*j.lease + 5*time.Second}
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

// nested makes up a job that takes one name, and then the other.
func (w *worker) nested() job {
	first, second := w.c.Targets[0], w.c.Targets[1]
	if w.c.Nests == history.NestUnordered && w.rng.IntN(2) == 0 {
		first, second = second, first
	}
	plain := func(t target) job {
		j := job{target: t, kind: w.kind(), how: "wait", wait: 2 * time.Second, lease: w.c.Lease, hold: time.Duration(1+w.rng.IntN(25)) * time.Millisecond}
		j.opts = append(j.opts, lock.WithWait(j.wait))
		if w.c.Nests == history.NestUnordered && w.rng.IntN(2) == 0 {
			j.opts = append(j.opts, lock.WithDeadlockBreaking())
		}
		return j
	}
	outer, inner := plain(first), plain(second)
	outer.inner = &inner
	return outer
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

// do takes the lock, holds it and gives it back. It reports whether it was given it.
func (w *worker) do(j job) bool {
	w.n++
	id := fmt.Sprintf("%s.%d", w.id, w.n)
	names := []string{j.target.Name}
	if j.kind.all {
		names = w.c.names()
	}
	l := j.kind.locker(w.c, names, j.opts...)
	parent := context.Background()
	if j.within != nil {
		parent = j.within.ctx
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	call := history.Event{
		At: now(), What: history.Call, ID: id, Name: j.target.Name, Kind: j.kind.name, How: j.how,
		Weight: j.kind.weight, Room: j.kind.room, Lease: j.lease, Fixed: j.fixed, Quick: w.c.settling.Load(),
		Shared: j.kind.shared, Whole: j.kind.whole,
	}
	if j.kind.all {
		call.Names = names
	}
	if j.within != nil {
		call.Nest = w.c.Nests
	}
	w.note(call)
	take := l.Lock
	if j.how == "try" {
		take = l.TryLock
	}
	if j.limit > 0 { // not before, or it is over, without a CPU, before there is a call to be counted
		ctx, cancel = context.WithTimeout(ctx, j.limit)
		defer cancel()
	}
	lease, err := take(ctx)
	at := now()
	if err != nil {
		reason := why(ctx, err)
		if j.within != nil && ctx.Err() != nil { // by the end of the lock that is held
			reason = history.WhyContext
			if errors.Is(err, lock.ErrUnavailable) {
				reason += ":unclear"
			}
		}
		w.note(history.Event{At: at, What: history.Refuse, ID: id, Why: reason})
		return false
	}
	grant := history.Event{At: at, What: history.Grant, ID: id, Owner: lease.Owner(), Token: lease.Token(), Until: onClock(lease.Deadline())}
	if j.kind.all {
		grant.Tokens = lease.Tokens()
	}
	w.note(grant)
	if j.cancel > 0 {
		timer := time.AfterFunc(j.cancel, cancel)
		defer timer.Stop()
	}
	h := &holding{w: w, id: id, lease: lease, ctx: lease.Context(), job: j, tokens: lease.Tokens()}
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
	case ctx.Err() != nil && errors.Is(err, lock.ErrUnavailable):
		return history.WhyContext + ":unavailable"
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return history.WhyContext + ":deadline"
	case ctx.Err() != nil:
		return history.WhyContext
	case errors.Is(err, lock.ErrReleased):
		return history.WhyReleased
	case errors.Is(err, lock.ErrHeld):
		return history.WhyHeld
	case errors.Is(err, lock.ErrDeadlock):
		return history.WhyDeadlock
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

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Random histories of several clients, in fake time, are compared with a model of a lock: who holds it, who may take it, and what everybody must be
// told.

const (
	modelLease    = 3 * time.Second
	modelInterval = modelLease / 3
	modelPermits  = 2
	modelTold     = 200 * time.Millisecond // after a forced unlock: the watchdog looks at once, but not oftener than it may
	modelChunk    = 50 * time.Millisecond  // time passes in such steps, after each of which all is at rest
	modelName     = "job"
)

// modelOp is one step; its numbers are drawn beforehand, so that rapid can shrink them.
type modelOp struct {
	Do     string
	Client int
	Which  int // of the leases
	Read   bool
	Fixed  bool
	For    time.Duration
}

// ref is the reference: one lock, and who is about it.
type ref struct {
	kind    string
	server  *redistest.Fake
	rdb     *redis.Client
	clients []*lock.Client
	holds   []*refHold
	waits   []*refWait
	token   int64     // the largest so far
	unclear time.Time // until when a closed client's lock may be in Redis
	places  time.Time // until when somebody who waits no longer may have a place in Redis
	ready   time.Time // since when somebody who waits could have it, zero: nobody could
	silent  bool      // ... and nobody was told
	erased  bool      // the lock was taken from Redis since anybody began to wait
	bad     []string
	log     []string
}

// refHold is a grant.
type refHold struct {
	handles []*lock.Lease
	client  int
	read    bool
	fixed   bool
	gone    time.Time     // from Redis, zero: it is there
	learns  time.Duration // how long after that its holder is told, at the latest
}

// refWait is a Lock that waits.
type refWait struct {
	client int
	read   bool
	fixed  bool
	behind bool // another of its client waited already
	until  time.Time
	got    chan refGot
}

type refGot struct {
	l   *lock.Lease
	err error
	at  time.Time
}

type refGrant struct {
	*refWait
	refGot
}

func (r *ref) wrong(format string, args ...any) {
	r.bad = append(r.bad, fmt.Sprintf(format, args...))
}

// TestModelOfLocks plays the histories.
func TestModelOfLocks(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mutex", "fair", "rw", "semaphore"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				does := []string{"try", "try", "lock", "lock", "lock", "release", "release", "release", "sleep", "sleep", "close"}
				if kind != "semaphore" {
					does = append(does, "force", "del", "again")
				}
				do := rapid.SampledFrom(does)
				ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) modelOp {
					return modelOp{
						do.Draw(t, "do"), rapid.IntRange(0, 2).Draw(t, "client"), rapid.IntRange(0, 5).Draw(t, "which"),
						rapid.Bool().Draw(t, "read"), rapid.IntRange(0, 3).Draw(t, "fixed") == 0,
						time.Duration(rapid.IntRange(1, 6000).Draw(t, "ms"))*time.Millisecond + 137*time.Microsecond,
					}
				}), 1, 40).Draw(rt, "ops")
				r := &ref{kind: kind}
				synctest.Test(t, func(t *testing.T) { r.play(t, ops) })
				if len(r.bad) > 0 {
					rt.Fatalf("%s\nafter %q", r.bad[0], r.log)
				}
			})
		})
	}
}

func (r *ref) play(t *testing.T, ops []modelOp) {
	r.server = redistest.StartFake(t)
	r.rdb = r.server.Client(t)
	for range 3 {
		r.clients = append(r.clients, r.open(t))
	}
	if r.kind == "semaphore" {
		if _, err := r.clients[0].Semaphore(modelName).TrySetPermits(t.Context(), modelPermits); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	for _, o := range ops {
		r.log = append(r.log, fmt.Sprintf("%v %+v", time.Since(start), o))
		r.step(t, o)
		r.rest()
		if len(r.bad) > 0 {
			break
		}
	}
	for i := range r.clients {
		r.close(i)
	}
	synctest.Wait()
	for _, w := range r.waits {
		<-w.got
	}
}

func (r *ref) open(t *testing.T) *lock.Client {
	return openTapped(t, r.server, fakeredis.Tap{}, lock.WithLease(modelLease))
}

// locker describes the lock.
func (r *ref) locker(client int, read bool, opts ...lock.LockOption) lock.Locker {
	c := r.clients[client]
	switch r.kind {
	case "fair":
		return c.FairMutex(modelName, opts...)
	case "semaphore":
		return c.Semaphore(modelName, opts...)
	case "rw":
		if read {
			return reader{c.RWMutex(modelName, opts...)}
		}
		return c.RWMutex(modelName, opts...)
	}
	return c.Mutex(modelName, opts...)
}

// reader is the readers' side.
type reader struct{ *lock.RWMutex }

func (r reader) Lock(ctx context.Context) (*lock.Lease, error)    { return r.RLock(ctx) }
func (r reader) TryLock(ctx context.Context) (*lock.Lease, error) { return r.TryRLock(ctx) }

func fixedIf(fixed bool) lock.LockOption {
	if fixed {
		return lock.WithFixedLease(modelLease)
	}
	return lock.WithLease(modelLease)
}

// fits reports whether one more could hold the lock beside its holders. It doesn't look at waiters.
func (r *ref) fits(read bool) bool {
	there := 0
	for _, h := range r.holds {
		if h.gone.IsZero() && (!read || !h.read || r.kind != "rw") {
			there++
		}
	}
	if r.kind == "semaphore" {
		return there < modelPermits
	}
	return there == 0
}

// may reports whether a call that begins now could get the lock: fits, and no waiter goes first.
func (r *ref) may(read bool) bool {
	waits := func(writer bool) bool {
		return slices.ContainsFunc(r.waits, func(w *refWait) bool { return !writer || !w.read })
	}
	switch {
	case r.kind == "rw" && read:
		return r.fits(read) && !waits(true)
	case r.kind == "fair":
		return r.fits(read) && !waits(false)
	}
	return r.fits(read)
}

// hidden reports whether a writer waits that other clients may not know of. Such a writer waits behind a reader of the
// same client, and enlists only after the reader's turn. If the lock was deleted, it may also wait behind another
// waiter of the same client.
func (r *ref) hidden() bool {
	reader := make(map[int]bool)
	return slices.ContainsFunc(r.waits, func(w *refWait) bool {
		reader[w.client] = reader[w.client] || w.read
		return !w.read && (reader[w.client] || r.erased && w.behind)
	})
}

func (r *ref) step(t *testing.T, o modelOp) {
	ctx := t.Context()
	var h *refHold
	if len(r.holds) > 0 {
		h = r.holds[o.Which%len(r.holds)]
	}
	switch o.Do {
	case "sleep":
		for end := time.Now().Add(o.For); time.Now().Before(end); {
			time.Sleep(min(modelChunk, time.Until(end)))
			r.rest()
		}
	case "try":
		l, err := r.locker(o.Client, o.Read, fixedIf(o.Fixed)).TryLock(ctx)
		want := r.may(o.Read)
		switch {
		case err != nil && !errors.Is(err, lock.ErrHeld):
			r.wrong("TryLock: %v", err)
		case time.Now().Before(r.unclear), time.Now().Before(r.places) && (r.kind == "fair" || r.kind == "rw"):
			// who is in the way has left: only the end of the lease, or of its place, is known
		case r.kind == "rw" && o.Read && r.fits(true) && r.hidden():
		case (err == nil) != want:
			r.wrong("TryLock: %v, should it have it: %v", err, want)
		}
		if err == nil {
			r.grant(o.Client, o.Read, o.Fixed, refGot{l, nil, time.Now()})
		}
	case "lock":
		behind := slices.ContainsFunc(r.waits, func(w *refWait) bool { return w.client == o.Client })
		w := &refWait{o.Client, o.Read, o.Fixed, behind, time.Now().Add(o.For), make(chan refGot, 1)}
		r.waits = append(r.waits, w)
		m := r.locker(o.Client, o.Read, fixedIf(o.Fixed), lock.WithWait(o.For))
		go func() {
			l, err := m.Lock(ctx)
			w.got <- refGot{l, err, time.Now()}
		}()
	case "again":
		if h == nil || h.client != o.Client {
			return
		}
		outer := h.handles[0]
		live := outer.Context().Err() == nil
		_, err := r.locker(o.Client, h.read).TryLock(outer.Context())
		l, rerr := r.locker(o.Client, h.read, lock.WithReentrancy()).TryLock(outer.Context())
		if !live {
			if err == nil || rerr == nil {
				r.wrong("re-entered a lease that has ended")
			}
			return
		}
		if !errors.Is(err, lock.ErrDeadlock) || rerr != nil || l.Token() != outer.Token() {
			r.wrong("re-entry: without the option %v, with it %v", err, rerr)
			return
		}
		h.handles = append(h.handles, l)
	case "release":
		if h != nil {
			r.release(ctx, h)
		}
	case "force":
		was, err := r.forceUnlock(ctx, o.Client)
		if held := !r.fits(false); err != nil || was != held && !time.Now().Before(r.unclear) {
			r.wrong("ForceUnlock: %v, %v, held: %v", was, err, held)
		}
		r.vanish(false)
		r.unclear = time.Time{}
	case "del":
		must(t, "DEL", r.rdb.Del(ctx, modelName).Err())
		r.vanish(true)
		r.unclear, r.erased = time.Time{}, true
	case "close":
		r.close(o.Client)
		r.clients[o.Client] = r.open(t)
	}
}

func (r *ref) forceUnlock(ctx context.Context, client int) (bool, error) {
	return r.locker(client, false).(interface {
		ForceUnlock(context.Context) (bool, error)
	}).ForceUnlock(ctx)
}

// release gives one handle back.
func (r *ref) release(ctx context.Context, h *refHold) {
	last := len(h.handles) - 1
	l := h.handles[last]
	ended := l.Err()
	err := l.Release(ctx)
	switch {
	case ended != nil && !errors.Is(err, lock.ErrLost),
		ended == nil && !h.gone.IsZero() && last == 0 && !errors.Is(err, lock.ErrLost),
		ended == nil && h.gone.IsZero() && err != nil:
		r.wrong("Release: %v, of a lease that had ended with %v, gone from Redis: %v", err, ended, !h.gone.IsZero())
	}
	if err := l.Release(ctx); !errors.Is(err, lock.ErrReleased) {
		r.wrong("the second Release: %v", err)
	}
	if h.handles = h.handles[:last]; last == 0 {
		r.drop(h)
	}
}

func (r *ref) drop(h *refHold) {
	r.holds = slices.DeleteFunc(r.holds, func(o *refHold) bool { return o == h })
}

// vanish takes the lock out of Redis.
func (r *ref) vanish(silent bool) {
	synctest.Wait()
	for _, h := range r.holds {
		if h.gone.IsZero() {
			h.gone, h.learns = time.Now(), modelTold
			if silent {
				h.learns = modelInterval + modelChunk
			}
		}
	}
	r.silent = r.silent || silent
}

// close has a client leave all that it holds.
func (r *ref) close(i int) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.clients[i].Close(ended) // says how many it left
	synctest.Wait()
	for _, h := range slices.Clone(r.holds) {
		if h.client != i {
			continue
		}
		if err := h.handles[0].Err(); !errors.Is(err, lock.ErrClosed) && !errors.Is(err, lock.ErrLost) {
			r.wrong("a lease of a closed client: %v", err)
		}
		r.drop(h)
	}
	r.unclear, r.silent = time.Now().Add(modelLease+modelChunk), true
}

// grant notes who has it now.
func (r *ref) grant(client int, read, fixed bool, got refGot) {
	if !r.fits(read) {
		r.wrong("granted to client %d (reads: %v) while %d hold it", client, read, len(r.holds))
	}
	if got.l.Token() <= r.token {
		r.wrong("the token is %d after %d", got.l.Token(), r.token)
	}
	r.token = max(r.token, got.l.Token())
	r.holds = append(r.holds, &refHold{handles: []*lock.Lease{got.l}, client: client, read: read, fixed: fixed})
	r.ready = time.Time{}
}

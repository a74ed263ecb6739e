package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// lookout has one server tell of changes to the keys that are held there, and looks at each that has changed. It runs, in two
// goroutines over two connections, from the first lease until half a minute after the last.
//
// What it sees is not believed, as a message on the control channel isn't: a lease whose entry is missing is renewed at once, and
// that says what became of it. A change that is told once is told again only when the key was looked at since: so a key is
// looked at when it is taken, after every change (each renewal is one), and when a connection had to be made anew.
type lookout struct {
	all  *lookouts
	node string
	kick chan struct{} // something has changed
	soon chan struct{} // something was taken

	// Guarded by lookouts.mu.
	held int // keys
	due  map[*heldKey]struct{}
}

const (
	lookGather  = time.Millisecond     // from news until the look: one change is many, of several keys
	lookSoon    = 5 * time.Millisecond // from a grant until the look: who releases sooner needs none
	lookBurst   = 3                    // looks in a lookWindow: a key that others change all the time costs no more
	lookWindow  = 60 * time.Millisecond
	looksAtOnce = 256 // keys

	lookIdle    = waitingPatience  // before a silent connection is asked for a sign of life
	lookAgain   = time.Second      // until a key is looked at again that was not to be had, as while its slot moves
	lookAfter   = 30 * time.Second // how long it stays when nothing is held
	lookWorked  = time.Second      // after which a failure is a new one
	lookRefused = time.Minute      // until a server that refuses is asked again
)

// news has a key looked at that has changed. It is called with lookouts.mu held.
func (lo *lookout) news(h *heldKey) { lo.look(h, lo.kick) }

// look has a key looked at. It is called with lookouts.mu held.
func (lo *lookout) look(h *heldKey, when chan struct{}) {
	lo.due[h] = struct{}{}
	select {
	case when <- struct{}{}:
	default:
	}
}

// forget takes a key away from the lookout. It is called with lookouts.mu held.
func (lo *lookout) forget(h *heldKey) {
	lo.held--
	delete(lo.due, h)
}

// run keeps the server telling while anything is held there.
func (lo *lookout) run() {
	s := lo.all
	for fails := 0; s.resume(lo); {
		worked, err := lo.stand()
		if err == nil || s.ctx.Err() != nil {
			continue
		}
		what := redisfail.Classify(err)
		s.c.rec.Error(s.ctx, telemetry.OpSubscribe, what.Kind)
		s.c.rec.PubSubReconnect()
		s.c.backend.Moved(s.ctx)
		var refused redis.Error
		if errors.As(err, &refused) && !what.Retry {
			s.refused(err)
			redisfail.Sleep(s.ctx, lookRefused/2+rand.N(lookRefused))
			continue
		}
		if fails++; worked {
			fails = 1
		}
		redisfail.Sleep(s.ctx, min(redisfail.Backoff(fails), 2*time.Second))
	}
}

// stand has one pair of connections, until it breaks or nothing has been held for a while. It says whether that went well for long.
func (lo *lookout) stand() (worked bool, err error) {
	s, began := lo.all, time.Now()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	t, err := s.tracker.Track(ctx, lo.node)
	if err != nil {
		return false, err
	}
	s.count(3)
	var listener sync.WaitGroup
	broken := make(chan error, 1)
	listener.Go(func() { broken <- lo.listen(ctx, t) })
	s.changed(lo, nil, true) // meanwhile nobody told
	err = lo.watch(ctx, t, broken)
	t.Close()
	listener.Wait()
	return time.Since(began) > lookWorked, err
}

// listen notes what the server tells, until the connection breaks.
func (lo *lookout) listen(ctx context.Context, t *backend.Tracking) error {
	for asked := false; ; {
		keys, all, err := t.Receive(ctx, lookIdle)
		switch {
		case err == nil:
			asked = false
			lo.all.changed(lo, keys, all)
		case errors.Is(err, backend.ErrIdle) && asked:
			return errSilent
		case errors.Is(err, backend.ErrIdle):
			asked = true
			lo.all.count(1)
			if err := t.PingEar(ctx); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// watch looks at what is due, until the connection breaks, or nothing has been held for a while: then err is nil.
func (lo *lookout) watch(ctx context.Context, t *backend.Tracking, broken <-chan error) error {
	idle := time.NewTicker(lookIdle)
	defer idle.Stop()
	var past [lookBurst]time.Time // of the last looks
	for held, n := time.Now(), 0; ; {
		select {
		case err := <-broken:
			return err
		case <-idle.C:
			switch now := time.Now(); {
			case lo.all.holds(lo):
				held = now
			case now.Sub(held) > lookAfter:
				return nil
			}
			lo.all.count(1)
			if err := t.Ping(ctx); err != nil { // it may be gone, and with it all that it has seen
				return err
			}
			continue
		case <-lo.soon:
			select {
			case <-lo.kick:
			case <-time.After(lookSoon):
			}
		case <-lo.kick:
		}
		redisfail.Sleep(ctx, max(lookGather, lookWindow-time.Since(past[n%lookBurst])))
		looked, err := lo.lookAll(ctx, t)
		if err != nil {
			return err
		}
		if looked {
			past[n%lookBurst] = time.Now()
			n++
		}
	}
}

// lookAll looks at what is due, and says whether anything was.
func (lo *lookout) lookAll(ctx context.Context, t *backend.Tracking) (looked bool, err error) {
	for {
		some, looks := lo.all.take(lo)
		if len(some) == 0 {
			return looked, nil
		}
		looked = true
		if err := lo.lookAt(ctx, t, some, looks); err != nil {
			return true, err
		}
	}
}

// lookAt looks at keys, and has the leases renewed whose entry isn't there, or would run out before their deadline.
func (lo *lookout) lookAt(ctx context.Context, t *backend.Tracking, some []glance, looks []backend.Look) error {
	s := lo.all
	for _, gl := range some {
		if s.count(1); !gl.sorted {
			s.count(1)
		}
	}
	sights, err := t.Look(ctx, looks)
	if err != nil {
		return err
	}
	now := time.Now()
	var again []*heldKey
	var doubtful []*watchdog.Lease
	for i, see := range sights {
		if see.Err != nil && !redisfail.IsWrongType(see.Err) {
			if !redisfail.Classify(see.Err).Retry {
				return see.Err
			}
			again = append(again, some[i].heldKey)
			continue
		}
		for j, g := range some[i].grants {
			if see.Err != nil || !see.There[j] || see.TTL >= 0 && now.Add(see.TTL).Before(some[i].deadlines[j]) {
				doubtful = append(doubtful, &g.wd)
			}
		}
	}
	s.c.engine.Verify(doubtful...)
	if len(again) > 0 {
		s.c.backend.Moved(ctx)
		time.AfterFunc(lookAgain, func() { s.again(again) })
	}
	return nil
}

package tracking

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

const (
	addedPause     = 5 * time.Millisecond // from Watch until the key is read: it may be unwatched before
	changedPause   = time.Millisecond     // from a change until the key is read: changes come in groups
	checkBurst     = 3                    // at most so many checks per checkWindow, however often keys change
	checkWindow    = 60 * time.Millisecond
	maxKeysPerCall = 256

	pingInterval = 3 * time.Second  // of silence before a PING; after as much again the connection is closed
	retryPause   = time.Second      // before a key is read again whose read was refused for the moment
	linger       = 30 * time.Second // how long the connections stay open without keys
	stableAfter  = time.Second      // if a connection breaks that is older than this, the backoff starts again
	refusedPause = time.Minute      // on average, before a server that refuses to track keys is asked again
)

var errSilent = redisfail.NewTimeout("lockdog: the connection for invalidations is silent")

// nodeTracker watches the keys of one node. Its two goroutines and two connections stay for linger after the last key.
type nodeTracker struct {
	trackers *Trackers
	name     string
	added    chan struct{} // signals that due has new keys
	changed  chan struct{} // signals that due has changed keys

	// Guarded by Trackers.mu.
	keys int // how many are assigned to this tracker
	due  map[*watchedKey]struct{}
}

// request makes a key due for a check, and sends a signal: the tracker's added or changed. Trackers.mu must be held.
func (n *nodeTracker) request(k *watchedKey, signal chan struct{}) {
	n.due[k] = struct{}{}
	select {
	case signal <- struct{}{}:
	default:
	}
}

// drop removes a key from the tracker. Trackers.mu must be held.
func (n *nodeTracker) drop(k *watchedKey) {
	n.keys--
	delete(n.due, k)
}

// run connects, again after each failure, while the tracker has keys.
func (n *nodeTracker) run() {
	t := n.trackers
	for failures := 0; t.resume(n); {
		start := time.Now()
		err := n.track()
		if err == nil || t.ctx.Err() != nil {
			continue
		}
		failure := redisfail.Classify(err)
		t.cfg.Recorder.Error(t.ctx, telemetry.OpSubscribe, failure.Kind)
		t.cfg.Recorder.PubSubReconnect()
		t.cfg.Backend.Moved(t.ctx)
		if isErrorReply(err) && !failure.Retry {
			t.refused.Do(func() { t.cfg.Refused(err) })
			redisfail.Sleep(t.ctx, refusedPause/2+rand.N(refusedPause))
			continue
		}
		if time.Since(start) > stableAfter {
			failures = 0
		}
		failures++
		redisfail.Sleep(t.ctx, redisfail.Backoff(failures))
	}
}

// track watches the keys over one pair of connections. It returns nil if there were no keys for linger.
func (n *nodeTracker) track() error {
	t := n.trackers
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	c, err := newConn(ctx, t.cfg.Backend, n.name)
	if err != nil {
		return err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	defer context.AfterFunc(c.gone, c.close)()
	if err := c.start(ctx, t.cfg.Backend.Timeout()); err != nil {
		return err
	}
	t.count(3) // CLIENT ID, SUBSCRIBE, CLIENT TRACKING
	broken := make(chan error, 1)
	t.running.Go(func() { broken <- n.receive(ctx, c) })
	return n.check(ctx, c, broken)
}

// receive requests checks of keys that the server reports as changed, until the connection for invalidations breaks.
func (n *nodeTracker) receive(ctx context.Context, c *conn) error {
	for pinged := false; ; {
		ev, err := c.invalidations.Receive(ctx, pingInterval)
		flushed := redisfail.IsNullMessage(err) // a database was flushed: any key may have changed
		switch {
		case err == nil, flushed:
			pinged = false
			n.trackers.invalidate(n, ev.Keys, flushed)
		case !errors.Is(err, backend.ErrIdle):
			return err
		case pinged:
			return errSilent
		default:
			pinged = true
			n.trackers.count(1)
			if err := c.invalidations.Ping(ctx); err != nil {
				return err
			}
		}
	}
}

// check checks the keys that are due, until a connection breaks or the server refuses a read for good. It returns nil
// if there were no keys for linger.
func (n *nodeTracker) check(ctx context.Context, c *conn, broken <-chan error) error {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	hadKeys := time.Now()
	var recent [checkBurst]time.Time // when the last checks began
	var crowd crowd
	var resume <-chan time.Time // ends a pause, in which nothing is checked; nil: there is no pause
	for i := 0; ; {
		added, changed := n.added, n.changed
		if resume != nil {
			added, changed = nil, nil
		}
		select {
		case err := <-broken:
			return err
		case now := <-ping.C:
			if n.trackers.hasKeys(n) {
				hadKeys = now
			} else if now.Sub(hadKeys) > linger {
				return nil
			}
			n.trackers.count(1)
			if err := c.data.Ping(ctx).Err(); err != nil { // the server tracks keys only while data is connected
				return err
			}
			continue
		case <-resume:
			resume = nil
		case <-added:
			select {
			case <-n.changed:
			case <-time.After(addedPause):
			}
		case <-changed:
		}
		redisfail.Sleep(ctx, max(changedPause, checkWindow-time.Since(recent[i])))
		began := time.Now()
		some, pause, err := n.checkDue(ctx, c, &crowd)
		if err != nil {
			return err
		}
		if some {
			recent[i] = began
			i = (i + 1) % checkBurst
		}
		if pause > 0 {
			n.trackers.crowded.Do(n.trackers.cfg.Crowded)
			resume = time.After(pause)
		}
	}
}

// checkDue checks the keys that are due, and reports whether there were some. If pause isn't 0, nothing may be checked
// for that long, and keys may still be due.
func (n *nodeTracker) checkDue(ctx context.Context, c *conn, crowd *crowd) (some bool, pause time.Duration, err error) {
	for pause == 0 {
		checks := n.trackers.nextChecks(n)
		if len(checks) == 0 {
			break
		}
		some = true
		if err := n.checkKeys(ctx, c, checks); err != nil {
			return some, 0, err
		}
		now := time.Now()
		pause = crowd.pause(n.trackers.countVain(checks, now), now)
	}
	return some, pause, nil
}

// checkKeys reads keys, and calls Config.Verify with entries that are missing, or will expire before their deadline.
func (n *nodeTracker) checkKeys(ctx context.Context, c *conn, checks []*keyCheck) error {
	t := n.trackers
	pipe := c.data.Pipeline()
	for _, k := range checks {
		k.send(ctx, pipe)
	}
	t.count(pipe.Len())
	if _, err := pipe.Exec(ctx); err != nil && !isErrorReply(err) { // an error reply is for one command only
		return err
	}
	now := time.Now()
	var suspects []Watched
	var again []string
	for _, k := range checks {
		entries, err := k.suspects(now)
		switch {
		case err == nil:
			suspects = append(suspects, entries...)
		case redisfail.IsTemporaryRefusal(err):
			again = append(again, k.Name)
		default:
			return err
		}
	}
	t.cfg.Verify(suspects)
	if len(again) > 0 {
		t.cfg.Backend.Moved(ctx)
		time.AfterFunc(retryPause, func() { t.invalidate(n, again, false) })
	}
	return nil
}

func isErrorReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

package pubsub

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

const (
	// A connection that is silent for this long is sent a PING. If it stays silent as long again, it is closed:
	// go-redis doesn't check for the PONG.
	waitingTimeout = 3 * time.Second
	idleTimeout    = 30 * time.Second // with only a control channel, whose messages may come late

	refusedPause     = 5 * time.Second        // on average, before a refused subscription is retried
	movedPause       = 100 * time.Millisecond // on average, before the first retry if the refusal may end by itself
	maxMovedDoubling = 3                      // how often movedPause doubles
	refusalWarning   = 5 * time.Second        // a refusal that may end by itself is reported if it lasts longer
	recheckInterval  = time.Second            // the least time between a check and one that Recheck asks for; see check
)

var (
	errSilent   = redisfail.NewTimeout("lockdog: the subscription's connection is silent")
	errUnwanted = errors.New("lockdog: no channel is listened to")
)

// subscriber holds the subscriptions of one endpoint. It runs while it has any.
type subscriber struct {
	mux  *Mux
	at   backend.Endpoint
	kick chan struct{} // signals that changed isn't empty

	// Guarded by Mux.mu.
	running bool
	subs    map[string]*subscription
	changed map[string]struct{} // channels to subscribe or unsubscribe
	conn    *connection         // nil while there is none
	retryAt time.Time           // when rejected subscriptions are retried; zero: no retry is planned

	// For the calls of Config.Refused. Only the goroutine of run uses these fields.
	refusals     int       // how many refusals so far may end by themselves
	refusedSince time.Time // when the first came
	warned       bool      // the last call of Config.Refused had an error
}

// connection is the part of a subscriber's state that ends with its connection. Mux.mu guards it.
type connection struct {
	backend.PubSub
	established bool      // a subscription was accepted or a message came, and no SUBSCRIBE was refused since
	singly      bool      // a subscription was refused: send one channel per command, so that the others are accepted
	checking    bool      // a check is running
	checked     time.Time // when the last check began
}

// add adds a subscription. Mux.mu must be held.
func (s *subscriber) add(sub *subscription) {
	s.subs[sub.channel] = sub
	if !s.running {
		s.running = true
		s.mux.done.Go(s.run)
	}
	s.change(sub.channel)
}

// change makes send check whether it must subscribe or unsubscribe a channel. Mux.mu must be held.
func (s *subscriber) change(channel string) {
	s.changed[channel] = struct{}{}
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run keeps a connection open while there are subscriptions.
func (s *subscriber) run() {
	m := s.mux
	var hungUpSince time.Time // zero: the last connection worked, or failed in another way
	for failures := 0; s.wanted(); {
		err := s.connect()
		worked := s.disconnected()
		if worked {
			failures = 0
		}
		if hungUp := redisfail.IsHungUp(err); worked || !hungUp {
			hungUpSince = time.Time{}
		} else if hungUpSince.IsZero() {
			hungUpSince = time.Now()
		}
		if errors.Is(err, errUnwanted) || m.ctx.Err() != nil {
			continue
		}
		m.cfg.Recorder.Error(m.ctx, telemetry.OpSubscribe, redisfail.Classify(err).Kind)
		m.cfg.Recorder.PubSubReconnect()
		m.cfg.Backend.Moved(m.ctx)
		if s.at.Bus && errors.Is(err, backend.ErrGone) {
			s.dropControl()
		}
		failures++
		pause := redisfail.Backoff(failures)
		if !hungUpSince.IsZero() && time.Since(hungUpSince) > refusalWarning {
			s.warn(err)
			pause = refusedPause/2 + rand.N(refusedPause)
		}
		redisfail.Sleep(m.ctx, pause)
	}
}

// warn calls Config.Refused, unless the last call of Config.Refused already had an error.
func (s *subscriber) warn(err error) {
	if !s.warned {
		s.warned = true
		s.mux.cfg.Refused(s.at.Node, err)
	}
}

// wanted reports whether run must go on: there are subscriptions, and the Mux isn't closed. First it moves the
// subscriptions that live elsewhere by now.
func (s *subscriber) wanted() bool {
	m := s.mux
	m.mu.Lock()
	defer m.mu.Unlock()
	m.relocate(s)
	s.running = len(s.subs) > 0 && m.ctx.Err() == nil
	return s.running
}

// connect opens a connection and uses it until it breaks or no subscription is left.
func (s *subscriber) connect() error {
	m := s.mux
	ps, err := m.cfg.Backend.Subscribe(m.ctx, s.at)
	if err != nil {
		return err
	}
	conn := &connection{PubSub: ps, checked: time.Now()}
	m.mu.Lock()
	s.conn = conn
	m.mu.Unlock()

	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends receive
	var sender sync.WaitGroup
	var sendErr error
	sender.Go(func() {
		defer cancel()
		sendErr = s.send(ctx, conn)
	})
	err = s.receive(conn)
	cancel()
	_ = conn.Close()
	sender.Wait()
	if sendErr != nil && !errors.Is(sendErr, redis.ErrClosed) { // receive ended because of it
		return sendErr
	}
	return err
}

// disconnected makes all subscriptions that have listeners pending again, and drops the others. It reports whether the
// connection had worked.
func (s *subscriber) disconnected() (worked bool) {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	worked = s.conn != nil && s.conn.established
	s.conn = nil
	for channel, sub := range s.subs {
		if len(sub.listeners) == 0 {
			delete(s.subs, channel)
			continue
		}
		sub.on(disconnected)
		s.change(channel)
	}
	return worked
}

// dropControl drops the control channel, because its node of the cluster is gone. It isn't called for a shard of a
// Ring, which may come back at any moment.
func (s *subscriber) dropControl() {
	s.mux.mu.Lock()
	maps.DeleteFunc(s.subs, func(_ string, sub *subscription) bool { return sub.control })
	s.mux.mu.Unlock()
	s.mux.cfg.Gone(s.at)
}

// receive handles events and refusals until the connection breaks.
func (s *subscriber) receive(conn *connection) error {
	m := s.mux
	for pinged := false; ; {
		ev, err := conn.Receive(m.ctx, s.timeout())
		var refusal redis.Error
		switch {
		case err == nil:
			pinged = false
			if accepted := s.handle(conn, ev); accepted {
				m.cfg.Refused(s.at.Node, nil)
			}
		case errors.Is(err, backend.ErrIdle) && pinged:
			return errSilent
		case errors.Is(err, backend.ErrIdle):
			pinged = true
			m.cfg.Recorder.Command(telemetry.PurposeSubscribe)
			if err := conn.Ping(m.ctx); err != nil {
				return err
			}
		case errors.As(err, &refusal):
			s.handleRefusal(conn, err)
		default:
			return err
		}
	}
}

// timeout returns how long the connection may be silent before it is sent a PING, and after that before it is closed.
// It is also the time between two checks.
func (s *subscriber) timeout() time.Duration {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	for _, sub := range s.subs { // at most one of them is a control channel
		if !sub.control {
			return waitingTimeout
		}
	}
	return idleTimeout
}

// handle applies an event to its subscription. It reports whether Config.Refused must be called with nil: the last call
// had an error, and the server now accepts subscriptions and refuses none.
func (s *subscriber) handle(conn *connection, ev backend.Event) (accepted bool) {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	// A server that refuses subscriptions may still answer PING and UNSUBSCRIBE.
	if ev.Kind == backend.Subscribed || ev.Kind == backend.Message {
		conn.established = true
	}
	sub := s.subs[ev.Channel]
	if sub == nil {
		return false
	}
	switch ev.Kind {
	case backend.Subscribed:
		sub.on(acknowledged)
		accepted = s.warned && !s.refused()
		s.warned = s.warned && !accepted
	case backend.Unsubscribed:
		switch {
		case !sub.on(ended):
		case len(sub.listeners) == 0:
			delete(s.subs, ev.Channel)
			s.change(ev.Channel)
		default:
			s.retry(movedPause, true)
		}
	case backend.Message:
		sub.tell(func(l Listener) { l.Message(ev.Payload) })
	}
	return accepted
}

// refused reports whether the server refuses any subscription. Mux.mu must be held.
func (s *subscriber) refused() bool {
	for _, sub := range s.subs {
		if sub.refused {
			return true
		}
	}
	return false
}

// handleRefusal rejects all requested subscriptions, and retries them later, one by one. If the refusal may end by
// itself (the channel's slot has moved, the cluster isn't complete), they are retried soon, and Config.Refused is
// called only if the refusals last.
func (s *subscriber) handleRefusal(conn *connection, err error) {
	m := s.mux
	failure := redisfail.Classify(err)
	m.cfg.Recorder.Error(m.ctx, telemetry.OpSubscribe, failure.Kind)
	m.mu.Lock()
	conn.singly = true
	if !s.refused() {
		s.refusals, s.refusedSince = 0, time.Now()
	}
	rejected := false
	for _, sub := range s.subs {
		rejected = sub.on(refused) || rejected
	}
	conn.established = conn.established && !rejected
	pause := refusedPause
	if failure.Retry {
		pause = movedPause << min(s.refusals, maxMovedDoubling)
		s.refusals++
	}
	s.retry(pause, failure.Retry)
	m.mu.Unlock()
	if rejected && (!failure.Retry || time.Since(s.refusedSince) > refusalWarning) {
		s.warn(err)
	}
}

// retry resubscribes the rejected channels after a pause, on the nodes where they live then, unless an earlier retry is
// planned. Mux.mu must be held.
func (s *subscriber) retry(pause time.Duration, moved bool) {
	m := s.mux
	pause = pause/2 + rand.N(pause)
	at := time.Now().Add(pause)
	if !s.retryAt.IsZero() && !at.Before(s.retryAt) {
		return
	}
	s.retryAt = at
	m.done.Go(func() {
		if moved {
			m.cfg.Backend.Moved(m.ctx)
		}
		redisfail.Sleep(m.ctx, pause)
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.retryAt.Equal(at) {
			s.retryAt = time.Time{}
		}
		m.relocate(s)
		for channel, sub := range s.subs {
			if sub.on(retried) {
				s.change(channel)
			}
		}
	})
}

// check checks whether messages of the channels are still published at the connection's server, and whether the
// channels are about to leave it. It does nothing if a check is running, if the last one began less than interval ago
// and didn't find the server gone, or after Close. PING isn't enough: a server that has left the cluster, or has lost
// its slots, still answers it.
func (s *subscriber) check(conn *connection, interval time.Duration) {
	m := s.mux
	m.mu.Lock()
	defer m.mu.Unlock()
	if conn.checking || time.Since(conn.checked) < interval || m.ctx.Err() != nil {
		return
	}
	conn.checking, conn.checked = true, time.Now()
	channels := slices.SortedFunc(maps.Keys(s.subs), longerFirst)
	m.done.Go(func() {
		if !m.cfg.Backend.Follow(m.ctx) { // the primary may have been replaced: messages are published at the new one
			redisfail.Sleep(m.ctx, movedPause) // the new layout is being loaded in the background
		}
		leaving, err := conn.Current(m.ctx, channels)
		gone := errors.Is(err, backend.ErrGone)
		if gone {
			m.cfg.Backend.Moved(m.ctx)
			redisfail.Sleep(m.ctx, movedPause)
			if s.at.Bus {
				_ = conn.Close() // the next connection goes to another node
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.relocate(s)
		conn.checking = false
		if gone {
			conn.checked = time.Time{} // a Recheck needn't wait: the new layout may not be known yet
		}
		if s.conn != conn {
			return
		}
		for _, channel := range channels {
			switch sub := s.subs[channel]; {
			case sub == nil:
			case leaving[channel]:
				sub.on(leaves)
			case err == nil || leaving != nil: // leaving is complete
				sub.on(stays)
			}
		}
	})
}

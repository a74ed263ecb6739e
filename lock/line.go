package lock

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

// line is one subscription connection: every channel of its station that somebody listens to goes over it. It is
// open while anybody listens, and belongs to two goroutines: one receives and rebuilds the connection, one sends.
type line struct {
	hub     *hub
	at      backend.Station
	backend backend.Backend
	rec     *telemetry.Recorder
	ctx     context.Context
	done    sync.WaitGroup

	mu      sync.Mutex
	running bool
	topics  map[string]*topic
	changed map[string]struct{} // channels to subscribe or unsubscribe
	leaving map[string]int      // UNSUBSCRIBE sent, not acknowledged yet
	kick    chan struct{}       // something has changed
	conn    backend.PubSub
	alive   bool                // a subscription stands: it was acknowledged over conn
	stray   map[string]struct{} // conn has subscribed to these channels, which are another line's by now
	singly  bool                // conn has refused a SUBSCRIBE: send one channel at a time, so that it refuses only that
	pausing time.Time           // when what isn't heard is tried again, zero: nothing is planned
	urgent  int                 // topics that someone waits on, unlike a control channel

	// What the server refuses.
	refusing   int       // topics
	refusals   int       // in a row
	since      time.Time // of the first in a row
	complained bool      // the log has been told

	checking bool // whether the server still is where the channels are published
	checked  time.Time
}

// topic is one channel.
type topic struct {
	channel   string
	listeners []listener
	control   bool // it stays with its line, and can do with slow answers
	sent      bool // SUBSCRIBE was sent over the present connection
	acked     bool
	refused   bool // by the server, and not acked since
}

const (
	// How long a connection may be silent before it is asked for a sign of life, and then again before it is given
	// up. go-redis never checks that a PONG came.
	waitingPatience = 3 * time.Second
	idlePatience    = 30 * time.Second // nobody waits: only a forced unlock would be noticed later

	refusedPause        = 5 * time.Second        // before a refused subscription is tried again
	movedPause          = 100 * time.Millisecond // ... and one that came to the wrong node, or to a server that isn't ready: the first time
	mostMovedPauses     = 8                      // ... and later
	refusalLasts        = 5 * time.Second        // after which the log is told of such a refusal, too
	doubtPause          = time.Second            // between two looks for where the channels are published, unless it is time
	maxChannelsPerWrite = 500
)

var errSilent = redisfail.NewTimeout("lockdog: the subscription's connection is silent")

func newLine(h *hub, at backend.Station) *line {
	return &line{
		hub: h, at: at, backend: h.backend, rec: h.rec, ctx: h.ctx, kick: make(chan struct{}, 1),
		topics: make(map[string]*topic), changed: make(map[string]struct{}), leaving: make(map[string]int), stray: make(map[string]struct{}),
	}
}

// listen adds a listener. It reports true if messages come already: then up isn't called.
func (ln *line) listen(channel string, l listener) bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	tp := ln.topics[channel]
	if tp == nil {
		tp = &topic{channel: channel}
		ln.add(tp)
	}
	tp.listeners = append(tp.listeners, l)
	return tp.acked
}

// control adds the listener of a control channel.
func (ln *line) control(channel string, l listener) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.topics[channel] == nil {
		ln.add(&topic{channel: channel, control: true, listeners: []listener{l}})
	}
}

// adopt takes over a topic of another line.
func (ln *line) adopt(tp *topic) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	tp.sent, tp.acked = false, false
	ln.add(tp)
}

// add is called with mu held.
func (ln *line) add(tp *topic) {
	ln.topics[tp.channel] = tp
	if !tp.control {
		ln.urgent++
	}
	if !ln.running {
		ln.running = true
		ln.done.Add(1)
		go ln.run()
	}
	ln.change(tp.channel)
}

// remove is called with mu held.
func (ln *line) remove(tp *topic) {
	delete(ln.topics, tp.channel)
	if !tp.control {
		ln.urgent--
	}
	ln.pardon(tp)
}

// pardon notes that a topic isn't refused, or not here any more. It is called with mu held.
func (ln *line) pardon(tp *topic) {
	if tp.refused {
		tp.refused = false
		if ln.refusing--; ln.refusing == 0 {
			ln.refusals, ln.since = 0, time.Time{}
		}
	}
}

// evict removes the topics that are not to be here any more.
func (ln *line) evict(strange func(*topic) bool) (out []*topic) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for _, tp := range ln.topics {
		if !tp.control && len(tp.listeners) > 0 && strange(tp) {
			ln.remove(tp)
			if tp.acked {
				ln.stray[tp.channel] = struct{}{}
			}
			ln.change(tp.channel)
			out = append(out, tp)
		}
	}
	return out
}

// unlisten removes a listener, and reports whether it was the last.
func (ln *line) unlisten(channel string, l listener) bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	tp := ln.topics[channel]
	if tp == nil {
		return false
	}
	if i := slices.Index(tp.listeners, l); i >= 0 {
		tp.listeners = slices.Delete(tp.listeners, i, i+1)
	}
	if len(tp.listeners) > 0 {
		return false
	}
	ln.change(channel)
	return true
}

// change has the sender look at a channel. It is called with mu held.
func (ln *line) change(channel string) {
	ln.changed[channel] = struct{}{}
	select {
	case ln.kick <- struct{}{}:
	default:
	}
}

// close ends the connection, whoever listens. The hub's ctx has ended.
func (ln *line) close() {
	ln.mu.Lock()
	conn := ln.conn
	ln.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
	ln.done.Wait()
}

// state reports whether a connection is wanted, and whether it works.
func (ln *line) state() (wanted, connected bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return len(ln.topics) > 0, ln.alive
}

// run keeps a connection up while there are topics.
func (ln *line) run() {
	defer ln.done.Done()
	for fails := 0; ; {
		ln.hub.rehome(ln) // a failover may have moved some
		ln.mu.Lock()
		if len(ln.topics) == 0 || ln.ctx.Err() != nil {
			ln.running = false
			ln.mu.Unlock()
			return
		}
		ln.mu.Unlock()

		worked, unwanted, err := ln.connect()
		ln.lost()
		if unwanted || ln.ctx.Err() != nil {
			continue
		}
		ln.rec.Error(ln.ctx, telemetry.OpSubscribe, redisfail.Classify(err).Kind)
		ln.rec.PubSubReconnect()
		ln.backend.Moved(ln.ctx)
		if ln.at.Bus && errors.Is(err, backend.ErrGone) {
			ln.abandon()
		}
		if fails++; worked {
			fails = 1
		}
		redisfail.Sleep(ln.ctx, min(redisfail.Backoff(fails), 2*time.Second))
	}
}

// abandon gives up the control channel of a server that is gone. A Ring's shard may come back at any moment, so its stays.
func (ln *line) abandon() {
	ln.mu.Lock()
	for _, tp := range ln.topics {
		if tp.control {
			ln.remove(tp)
		}
	}
	ln.mu.Unlock()
	ln.hub.gone(ln.at)
}

// connect has one connection, until it breaks or isn't wanted any more. It reports whether it ever worked.
func (ln *line) connect() (worked, unwanted bool, err error) {
	conn, err := ln.backend.Subscribe(ln.ctx, ln.at)
	if err != nil {
		return false, false, err
	}
	ln.mu.Lock()
	ln.conn = conn
	ln.mu.Unlock()
	if ln.ctx.Err() != nil { // close may have been before
		_ = conn.Close()
	}

	var sender sync.WaitGroup
	stop := make(chan struct{})
	var sendErr error
	sender.Go(func() { unwanted, sendErr = ln.send(conn, stop) })
	worked, err = ln.receive(conn)
	close(stop)
	_ = conn.Close()
	sender.Wait()
	if sendErr != nil && !errors.Is(sendErr, redis.ErrClosed) { // that is why receiving ended, and not the other way round
		err = sendErr
	}
	return worked, unwanted, err
}

// lost tells every listener that messages may be missed from now on.
func (ln *line) lost() {
	ln.mu.Lock()
	ln.conn, ln.alive, ln.singly = nil, false, false
	clear(ln.leaving)
	clear(ln.stray)
	var told []listener
	for channel, tp := range ln.topics {
		tp.sent, tp.acked = false, false
		ln.pardon(tp)
		told = append(told, tp.listeners...)
		if len(tp.listeners) == 0 {
			ln.remove(tp)
			continue
		}
		ln.change(channel)
	}
	ln.mu.Unlock()
	for _, l := range told {
		l.down()
	}
}

// receive hands out what comes over the connection, until it breaks. It reports whether it ever worked.
func (ln *line) receive(conn backend.PubSub) (worked bool, err error) {
	asked := false
	ln.mu.Lock()
	ln.checked = time.Now()
	ln.mu.Unlock()
	for {
		patience := ln.patience()
		ev, err := conn.Receive(ln.ctx, patience)
		ln.check(conn, patience)
		var refused redis.Error
		switch {
		case err == nil:
			asked = false
		case errors.Is(err, backend.ErrIdle) && asked:
			return worked, errSilent
		case errors.Is(err, backend.ErrIdle):
			asked = true
			ln.rec.Command(telemetry.PurposeSubscribe)
			if err := conn.Ping(ln.ctx); err != nil {
				return worked, err
			}
			continue
		case errors.As(err, &refused):
			ln.refused(err)
			continue
		default:
			return worked, err
		}

		worked = true
		told := ln.note(ev)
		if ev.Kind == backend.Subscribed && ln.appeased() {
			ln.hub.refused(ln.at.Node, nil)
		}
		for _, l := range told {
			switch ev.Kind {
			case backend.Subscribed:
				l.up()
			case backend.Unsubscribed:
				l.down()
			case backend.Message:
				l.message(ev.Payload)
			}
		}
	}
}

// note brings the topics up to date with an event, and returns who is to be told of it.
func (ln *line) note(ev backend.Event) []listener {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ev.Kind == backend.Subscribed || ev.Kind == backend.Message { // where subscriptions are refused, PING and UNSUBSCRIBE are answered, too
		ln.alive = true
	}
	if ev.Kind == backend.Unsubscribed && ln.leaving[ev.Channel] > 0 {
		if ln.leaving[ev.Channel]--; ln.leaving[ev.Channel] == 0 {
			delete(ln.leaving, ev.Channel)
		}
		return nil
	}
	delete(ln.stray, ev.Channel)
	tp := ln.topics[ev.Channel]
	if tp == nil {
		return nil
	}
	switch ev.Kind {
	case backend.Subscribed:
		tp.acked = true
		ln.pardon(tp)
	case backend.Unsubscribed: // not asked for: the channel has moved
		tp.acked = false
		ln.again(movedPause, true)
	}
	return slices.Clone(tp.listeners)
}

func (ln *line) patience() time.Duration {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.urgent > 0 {
		return waitingPatience
	}
	return idlePatience
}

// appeased reports whether the server takes what it has refused, of which the log was told.
func (ln *line) appeased() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if !ln.complained || ln.refusing > 0 {
		return false
	}
	ln.complained = false
	return true
}

// refused notes that the server will not let us listen, and has what it meant tried again later, one by one: which
// channels it meant, the answer doesn't say. A server that may stop refusing by itself (the channel's slot has moved, the cluster isn't
// complete) is asked again soon, and the log hears of it only if it lasts.
func (ln *line) refused(err error) {
	what := redisfail.Classify(err)
	ln.rec.Error(ln.ctx, telemetry.OpSubscribe, what.Kind)
	ln.mu.Lock()
	ln.singly = true
	clear(ln.leaving) // it may be one of these that isn't acknowledged
	var told []listener
	for _, tp := range ln.topics {
		if tp.sent && !tp.acked {
			told = append(told, tp.listeners...)
			if !tp.refused {
				tp.refused = true
				ln.refusing++
			}
		}
	}
	if ln.since.IsZero() {
		ln.since = time.Now()
	}
	ln.alive = ln.alive && len(told) == 0
	pause := refusedPause
	if what.Retry {
		pause = movedPause * time.Duration(min(1<<min(ln.refusals, 10), mostMovedPauses))
		ln.refusals++
	}
	complain := !ln.complained && len(told) > 0 && (!what.Retry || time.Since(ln.since) > refusalLasts)
	ln.complained = ln.complained || complain
	ln.again(pause, what.Retry)
	ln.mu.Unlock()
	if complain {
		ln.hub.refused(ln.at.Node, err)
	}
	for _, l := range told {
		l.down()
	}
}

// again has the channels that aren't heard looked for and subscribed to anew after a pause. It is called with mu held.
func (ln *line) again(pause time.Duration, moved bool) {
	pause = pause/2 + rand.N(pause)
	until := time.Now().Add(pause)
	if !ln.pausing.IsZero() && !until.Before(ln.pausing) {
		return
	}
	ln.pausing = until
	ln.done.Go(func() {
		if moved {
			ln.backend.Moved(ln.ctx)
		}
		redisfail.Sleep(ln.ctx, pause)
		ln.hub.rehome(ln)
		ln.mu.Lock()
		defer ln.mu.Unlock()
		if ln.pausing.Equal(until) {
			ln.pausing = time.Time{}
		}
		for channel, tp := range ln.topics {
			if !tp.acked {
				tp.sent = false
				ln.change(channel)
			}
		}
	})
}

// doubt has the line look whether its server still is where its channels are published.
func (ln *line) doubt() {
	ln.mu.Lock()
	conn := ln.conn
	ln.mu.Unlock()
	if conn != nil {
		ln.check(conn, doubtPause)
	}
}

// check is doubt for when it hasn't looked for so long. A server that has left the cluster, or has handed on its slots, goes on answering
// PING.
func (ln *line) check(conn backend.PubSub, pause time.Duration) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.conn != conn || ln.checking || time.Since(ln.checked) < pause || ln.ctx.Err() != nil {
		return
	}
	ln.checking = true
	channels := slices.Collect(maps.Keys(ln.topics))
	ln.done.Go(func() {
		ln.backend.Follow(ln.ctx) // nobody publishes at a primary that was replaced
		if ln.backend.Traits().PerNode {
			redisfail.Sleep(ln.ctx, movedPause) // the new layout comes in the background
		}
		current := conn.Current(ln.ctx, channels)
		if !current {
			ln.backend.Moved(ln.ctx)
			redisfail.Sleep(ln.ctx, movedPause)
			if ln.at.Bus {
				_ = conn.Close() // and then another node is found
			}
		}
		ln.hub.rehome(ln)
		ln.mu.Lock()
		defer ln.mu.Unlock()
		ln.checking, ln.checked = false, time.Now()
		if !current {
			ln.checked = time.Time{} // the layout may not be known yet
		}
	})
}

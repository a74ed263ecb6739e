package lock

import (
	"context"
	"sync"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/telemetry"
)

// hub listens to channels: over one connection for the whole client, or one per node where a message is heard
// only on the node of its channel.
//
// What a listener may rely on: after up, no message is missed until down. So whoever waits for a lock
// tries again after every up, and goes by its timer after a down.
type hub struct {
	backend backend.Backend
	rec     *telemetry.Recorder
	ctx     context.Context
	cancel  context.CancelFunc

	refused func(node string, err error) // is told when a server refuses to be listened to, and, without err, when it agrees again
	gone    func(backend.Station)        // is told when a control channel is listened to no more, for its server is gone

	mu    sync.Mutex // taken before a line's
	lines map[backend.Station]*line
	where map[string]*line // channel -> the line it is listened to on
}

// listener is told what happens on a channel, one call at a time.
type listener interface {
	up()
	down()
	message(payload string)
}

func newHub(b backend.Backend, rec *telemetry.Recorder, refused func(node string, err error), gone func(backend.Station)) *hub {
	h := &hub{backend: b, rec: rec, refused: refused, gone: gone, lines: make(map[backend.Station]*line), where: make(map[string]*line)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// listen adds a listener to the channel of a lock. It reports true if messages come already: then up isn't called.
func (h *hub) listen(channel string, l listener) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return false
	}
	ln := h.where[channel]
	if ln == nil {
		ln = h.line(h.stationOf(channel))
		h.where[channel] = ln
	}
	return ln.listen(channel, l)
}

// unlisten removes a listener. It may be told something for a moment yet.
func (h *hub) unlisten(channel string, l listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ln := h.where[channel]; ln != nil && ln.unlisten(channel, l) {
		delete(h.where, channel)
	}
}

// control listens to a control channel, for as long as its server is there.
func (h *hub) control(at backend.Station, channel string, l listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() == nil {
		h.line(at).control(channel, l)
	}
}

// line returns the line of a station. It is called with mu held.
func (h *hub) line(at backend.Station) *line {
	ln := h.lines[at]
	if ln == nil {
		ln = newLine(h, at)
		h.lines[at] = ln
	}
	return ln
}

func (h *hub) stationOf(channel string) backend.Station {
	if !h.backend.Traits().PerNode {
		return backend.Station{}
	}
	return backend.Station{Node: h.backend.Node(channel)}
}

// rehome gives the channels of a line that live on another node by now to that node's line.
func (h *hub) rehome(from *line) {
	for _, l := range h.move(from) {
		l.down()
	}
}

// move is rehome, and returns the listeners who heard of messages until now.
func (h *hub) move(from *line) (heard []listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, tp := range from.evict(func(tp *topic) bool {
		at := h.stationOf(tp.channel)
		return at != from.at && (at.Node != "" || !h.backend.Traits().PerNode) // else its node isn't known just now
	}) {
		if tp.acked {
			heard = append(heard, tp.listeners...)
		}
		to := h.line(h.stationOf(tp.channel))
		h.where[tp.channel] = to
		to.adopt(tp)
	}
	return heard
}

// doubt has a channel looked after on which a message seems to have been missed.
func (h *hub) doubt(channel string) {
	h.mu.Lock()
	ln := h.where[channel]
	h.mu.Unlock()
	if ln != nil {
		ln.doubt()
	}
}

// close ends the connections, whoever listens.
func (h *hub) close() {
	h.cancel()
	h.mu.Lock()
	lines := make([]*line, 0, len(h.lines))
	for _, ln := range h.lines {
		lines = append(lines, ln)
	}
	h.mu.Unlock()
	for _, ln := range lines {
		ln.close()
	}
}

// state reports whether a connection is wanted, and whether all that are wanted work.
func (h *hub) state() (wanted, connected bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	connected = true
	for _, ln := range h.lines {
		if w, c := ln.state(); w {
			wanted, connected = true, connected && c
		}
	}
	return wanted, wanted && connected
}

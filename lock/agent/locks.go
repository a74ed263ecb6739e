package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/lockdog/lockdog/lock"
)

const (
	maxNote       = 256             // bytes
	releaseWithin = 5 * time.Second // the client of package lock goes on after that
)

// heldLine is the first line of an answer: the lock is held.
type heldLine struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Owner string `json:"owner"`
	Token int64  `json:"token"`
	deadlineLine
}

// deadlineLine is a later line: the lock is still held.
type deadlineLine struct {
	Deadline time.Time `json:"deadline"` // until then, unless another line says more
	Until    float64   `json:"until"`    // the same in seconds since 1970
}

// lostLine is the last line.
type lostLine struct {
	Lost string `json:"lost"` // how
}

// failure is the answer if there is no lock.
type failure struct {
	Error string `json:"error"`
}

// heldLock is a lock that is held by a connection.
type heldLock struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Owner    string    `json:"owner"`
	Token    int64     `json:"token,omitempty"` // 0: of a client that takes locks by itself
	PID      int       `json:"pid"`             // of the holder; 0 if it has none in the agent's PID namespace
	UID      uint32    `json:"uid"`
	Note     string    `json:"note,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`

	lease *lock.Lease
}

// connection is a request for a lock.
type connection struct{ held atomic.Pointer[heldLock] }

func (c *connection) list() []heldLock {
	h := c.held.Load()
	if h == nil {
		return nil
	}
	now := *h
	now.Deadline = h.lease.Deadline()
	return []heldLock{now}
}

// holdLock serves POST /v1/locks/{name...}: it takes a lock, and holds it as long as the connection is open.
func (a *Agent) holdLock(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_, _ = rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Time{}) // not those of the header
	refuse := func(status int, err error) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(failure{err.Error()})
	}
	if r.ContentLength != 0 { // the server notices the end of a connection only if nothing is left to read
		refuse(http.StatusBadRequest, errors.New("a body; none is allowed"))
		return
	}
	p, name := a.peerOf(r), r.PathValue("name")
	if err := a.mayTake(p, name); err != nil {
		refuse(http.StatusForbidden, err)
		return
	}
	var c connection
	if _, err := a.usage.enter(p, &c); err != nil {
		refuse(http.StatusTooManyRequests, err)
		return
	}
	defer a.usage.leave(p, &c)
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	h := &heldLock{Name: name, PID: p.pid, UID: p.uid}
	var err error
	if h.lease, err = a.take(ctx, h, r.URL.RawQuery); err != nil {
		refuse(answerTo(err))
		return
	}
	h.Owner, h.Token, h.Since = h.lease.Owner(), h.lease.Token(), time.Now()
	c.held.Store(h)
	a.held.Add(1)
	defer a.held.Add(-1)
	w.Header().Set("Content-Type", "application/jsonl")
	keep(r.Context(), h, func(line any) error {
		if lost, ok := line.(lostLine); ok {
			a.logger().Warn("lockdog: a connection has lost its lock", "name", h.Name, "owner", h.Owner,
				"pid", h.PID, "uid", h.UID, "note", h.Note, "error", lost.Lost)
		}
		_ = rc.SetWriteDeadline(time.Now().Add(replyTime))
		if err := json.NewEncoder(w).Encode(line); err != nil {
			return err
		}
		return rc.Flush()
	})
}

// keep holds a lock until the connection ends, and then releases it. If it is lost, keep says so and returns.
func keep(connected context.Context, h *heldLock, say func(line any) error) {
	l := h.lease
	told := l.Deadline()
	deadline := func() deadlineLine {
		return deadlineLine{told.UTC().Truncate(time.Millisecond), float64(told.UnixMilli()) / 1000}
	}
	err := say(heldLine{h.Name, h.Kind, h.Owner, h.Token, deadline()})
	for err == nil {
		select {
		case <-connected.Done():
			release(l)
			return
		case <-l.Context().Done():
			err = context.Cause(l.Context())
			_, text := answerTo(err)
			if said := say(lostLine{text.Error()}); said == nil && l.Err() != nil {
				return
			}
		case <-time.After(max(time.Until(told)/4, 50*time.Millisecond)):
			if now := l.Deadline(); now.After(told) {
				told = now
				err = say(deadline())
			}
		}
	}
	// The peer doesn't read, or the agent ends. The peer may use the lock for as long as it was told.
	select {
	case <-connected.Done():
	case <-time.After(time.Until(told)):
	}
	release(l)
}

func release(l *lock.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	_ = l.Release(ctx) // the client reports a failure, and tries again
}

// take takes the lock that a query describes.
func (a *Agent) take(ctx context.Context, h *heldLock, query string) (*lock.Lease, error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%w: the query: %w", lock.ErrInvalid, err)
	}
	for key, values := range q {
		if !slices.Contains([]string{"kind", "lease", "note", "permits", "wait"}, key) || len(values) > 1 {
			return nil, fmt.Errorf("%w: %.64q: kind, lease, note, permits and wait are allowed, once each", lock.ErrInvalid, key)
		}
	}
	if h.Note = q.Get("note"); len(h.Note) > maxNote {
		return nil, fmt.Errorf("%w: a note of %d bytes; %d are allowed", lock.ErrInvalid, len(h.Note), maxNote)
	}
	lease, err1 := duration(q, "lease", lock.DefaultLease)
	wait, err2 := duration(q, "wait", 0)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	if wait < 0 {
		return nil, fmt.Errorf("%w: wait=%v: must not be negative", lock.ErrInvalid, wait)
	}
	opts := []lock.LockOption{lock.WithLease(lease), lock.WithWait(wait), lock.WithLifetime(context.WithoutCancel(ctx))}
	var l lock.Locker
	switch h.Kind = cmp.Or(q.Get("kind"), "mutex"); h.Kind {
	case "mutex":
		l = a.locks.Mutex(h.Name, opts...)
	case "fair":
		l = a.locks.FairMutex(h.Name, opts...)
	case "write":
		l = a.locks.RWMutex(h.Name, opts...)
	case "read":
		l = a.locks.RWMutex(h.Name, opts...).RLocker()
	case "semaphore":
		s := a.locks.Semaphore(h.Name, opts...)
		permits, err := strconv.Atoi(q.Get("permits"))
		if err != nil || permits < 1 {
			return nil, fmt.Errorf("%w: permits=%.64q: must be a number, 1 or more", lock.ErrInvalid, q.Get("permits"))
		}
		if err := s.EnsurePermits(ctx, permits); err != nil {
			return nil, err
		}
		l = s
	default:
		return nil, fmt.Errorf("%w: kind=%.64q: must be mutex, fair, read, write or semaphore", lock.ErrInvalid, h.Kind)
	}
	if q.Has("permits") && h.Kind != "semaphore" {
		return nil, fmt.Errorf("%w: permits: only with kind=semaphore", lock.ErrInvalid)
	}
	return l.Lock(ctx)
}

func duration(q url.Values, key string, without time.Duration) (time.Duration, error) {
	if !q.Has(key) {
		return without, nil
	}
	d, err := time.ParseDuration(q.Get(key))
	if err != nil {
		return 0, fmt.Errorf("%w: %s=%.64q: must be a duration such as 30s", lock.ErrInvalid, key, q.Get(key))
	}
	return d, nil
}

// errEnding is the error of a peer whose lock, or request for one, an agent that ends can't serve any more.
var errEnding = errors.New("the agent ends")

// answerTo returns the status for the error of a lock, and what to say. The agent's own locks are others' for the peer.
func answerTo(err error) (int, error) {
	var held *lock.HeldError
	switch {
	case errors.As(err, &held) && held.Owner != "" && held.Remaining >= 0:
		return http.StatusLocked, fmt.Errorf("lock %q is held by %q, for another %v unless renewed",
			held.Name, held.Owner, held.Remaining.Round(time.Millisecond))
	case errors.Is(err, lock.ErrHeld):
		return http.StatusLocked, err
	case errors.Is(err, lock.ErrInvalid):
		return http.StatusBadRequest, err
	case errors.Is(err, lock.ErrClosed):
		return http.StatusServiceUnavailable, errEnding
	}
	return http.StatusServiceUnavailable, err
}

// listLocks serves GET /v1/locks: the locks of the peer's user or, for root and the agent's own user, of all.
func (a *Agent) listLocks(w http.ResponseWriter, r *http.Request) {
	p := a.peerOf(r)
	list := a.usage.locks(func(uid uint32) bool {
		return p.known && (p.uid == uid || p.uid == 0 || p.uid == uint32(os.Getuid()))
	})
	slices.SortFunc(list, func(x, y heldLock) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Owner, y.Owner))
	})
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string][]heldLock{"locks": list})
}

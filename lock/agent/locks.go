package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
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
	maxUnasked    = 64 << 10        // bytes that a peer may send after its request; they mean nothing
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

// HeldLock is a lock in the list that GET /v1/locks answers: one that a connection holds, or one that a client of
// package lock says it holds.
type HeldLock struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Owner    string    `json:"owner"`
	Token    int64     `json:"token,omitempty"` // 0: of a client that takes locks by itself
	PID      int       `json:"pid"`             // of the holder; 0 if it has none in the agent's PID namespace
	UID      uint32    `json:"uid"`
	Note     string    `json:"note,omitempty"`
	Since    time.Time `json:"since,omitzero"`    // only of a connection
	Deadline time.Time `json:"deadline,omitzero"` // likewise

	lease *lock.Lease // of a connection
}

// connection is a connection that holds a lock, or waits for one.
type connection struct{ held atomic.Pointer[HeldLock] }

func (c *connection) list() []HeldLock {
	h := c.held.Load()
	if h == nil {
		return nil
	}
	now := *h
	now.Deadline = h.lease.Deadline()
	return []HeldLock{now}
}

// holdLock serves POST /v1/locks/{name...}: it takes a lock, and holds it as long as the connection is open. It takes
// over the connection: net/http doesn't notice its end if a byte came before, and takes a failed write for its end.
func (a *Agent) holdLock(w http.ResponseWriter, r *http.Request) {
	v := visitorOf(r)
	if !r.ProtoAtLeast(1, 1) {
		http.Error(w, "HTTP/1.1 is needed", http.StatusHTTPVersionNotSupported)
		return
	}
	a.locked.Add(1)
	defer a.locked.Done()
	_, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = v.SetDeadline(time.Time{}) // not that of the header
	connected, ended := context.WithCancel(context.WithoutCancel(r.Context()))
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer ended()
		_, _ = io.CopyN(io.Discard, in, maxUnasked)
	}()
	defer func() {
		_ = v.Close()
		<-read
	}()
	var c connection
	v.user.add(&c)
	defer v.user.remove(&c)
	h := &HeldLock{Name: r.PathValue("name"), PID: v.pid, UID: v.uid}
	ctx := propagation.TraceContext{}.Extract(connected, propagation.HeaderCarrier(r.Header))
	if status, err := a.take(ctx, v.peer, h, r.URL.RawQuery); err != nil {
		refuse(v, status, err)
		return
	}
	c.held.Store(h)
	a.held.Add(1)
	defer a.held.Add(-1)
	body := httputil.NewChunkedWriter(v)
	a.keep(connected, h, func(line any) error {
		_ = v.SetWriteDeadline(time.Now().Add(replyTime))
		if _, first := line.(heldLine); first {
			_, err := io.WriteString(v, heldHead)
			if err != nil {
				return err
			}
		}
		return json.NewEncoder(body).Encode(line)
	})
	if body.Close() == nil {
		_, _ = io.WriteString(v, "\r\n")
	}
}

// heldHead begins the answer of a connection that holds a lock. It has no "Connection: close", with which Python's
// http.client would hide the socket from the program.
const heldHead = "HTTP/1.1 200 OK\r\nContent-Type: application/jsonl\r\nTransfer-Encoding: chunked\r\n\r\n"

// keep holds a lock until the connection ends, and then releases it. If it is lost, keep says so and returns.
func (a *Agent) keep(connected context.Context, h *HeldLock, say func(line any) error) {
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
			_, err = answerTo(context.Cause(l.Context()))
			a.logLoss(h, err)
			if said := say(lostLine{err.Error()}); said == nil && l.Err() != nil {
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
	case <-a.gaveUp:
	}
	release(l)
}

func (a *Agent) logLoss(h *HeldLock, err error) {
	defer func() { _ = recover() }() // the lock must be released, even if the logger panics
	a.logger().Warn("lockdog: a connection has lost its lock",
		"name", h.Name, "owner", h.Owner, "pid", h.PID, "uid", h.UID, "note", h.Note, "error", err)
}

func release(l *lock.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	_ = l.Release(ctx) // the client reports a failure, and tries again
}

// take takes a lock. After an error it returns the status of the answer.
func (a *Agent) take(ctx context.Context, p peer, h *HeldLock, query string) (status int, err error) {
	if err := a.mayTake(p, h.Name); err != nil {
		return http.StatusForbidden, err
	}
	h.lease, err = a.lock(ctx, h, query)
	if err == nil {
		h.Owner, h.Token, h.Since = h.lease.Owner(), h.lease.Token(), time.Now()
		return http.StatusOK, nil
	}
	return answerTo(err)
}

// lock takes the lock that a query describes.
func (a *Agent) lock(ctx context.Context, h *HeldLock, query string) (*lock.Lease, error) {
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
		if err := ensureTotal(ctx, s, permits); err != nil {
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

// ensureTotal gives a semaphore its permits, unless it has a total. A peer can't change that: the semaphore may be
// another user's, or a number of a program.
func ensureTotal(ctx context.Context, s *lock.Semaphore, permits int) error {
	_, err := s.TrySetPermits(ctx, permits)
	if err != nil {
		return err
	}
	total, err := s.Total(ctx)
	if err == nil && total != permits {
		err = fmt.Errorf("%w: permits=%d: there is a semaphore of that name with another total", lock.ErrInvalid, permits)
	}
	return err
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
	a.listing.Lock() // a list may be long
	defer a.listing.Unlock()
	list := a.usage.locks(visitorOf(r).maySee)
	slices.SortFunc(list, func(x, y HeldLock) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Owner, y.Owner))
	})
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string][]HeldLock{"locks": list})
}

// onlyForOwner serves root and the agent's own user.
func onlyForOwner(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v := visitorOf(r); !v.known || !v.isOwner() {
			http.Error(w, "only for root, and for the user that the agent runs as", http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// isOwner reports whether a peer is root or the agent's own user.
func (p *peer) isOwner() bool { return p.uid == 0 || p.uid == uint32(os.Getuid()) }

// maySee reports whether a peer may see the locks of a user.
func (p *peer) maySee(uid uint32) bool {
	return p.known && (p.uid == uid || p.isOwner())
}

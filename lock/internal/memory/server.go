// Package memory is a server for package lock that lives in this process: the scripts of lock/scripts, written
// again in Go, over a map. lock/locktest offers it to users' tests.
//
// It does no I/O, and nothing in it blocks but Receive, on channels and a timer: so it works in a bubble of testing/synctest, where
// leases run out in fake time. Replies and errors have the shape that go-redis gives them, so that what reads
// them is tested, too. What a Redis has beyond the needs of our scripts isn't here.
package memory

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// Server is the store and its channels. Any number of clients may share it. It is safe for concurrent use.
type Server struct {
	mu          sync.Mutex
	keys        map[string]*entry
	subscribers map[string]map[*conn]struct{} // by channel
	notices     map[string][]string           // by client: what Notify could not deliver yet
	failing     error                         // of every renewal, nil: they work
	clock       int64                         // what TIME said last, µs
	cutOff      map[hold]struct{}             // whose renewals fail
}

// hold is one owner's hold on a key.
type hold struct{ key, owner string }

// entry is a key's value: a hash, or a string where fields is nil.
type entry struct {
	fields  []field // in the order they were set, as a small hash of Redis has them
	text    string
	expires time.Time // zero: never
	kept    time.Duration
}

type field struct{ name, value string }

// New returns an empty server.
func New() *Server {
	return &Server{
		keys:        make(map[string]*entry),
		subscribers: make(map[string]map[*conn]struct{}),
		notices:     make(map[string][]string),
		cutOff:      make(map[hold]struct{}),
	}
}

// time is TIME, in µs. A bubble's clock stands still between two calls; no Redis's does, and tokens rise by that.
func (s *Server) time() int64 {
	s.clock = max(s.clock+1, time.Now().UnixMicro())
	return s.clock
}

// find returns a key's entry, nil if there is none any more. It is called with mu held, like all below it.
func (s *Server) find(key string) *entry {
	e := s.keys[key]
	if e != nil && !e.expires.IsZero() && !time.Now().Before(e.expires) {
		delete(s.keys, key)
		return nil
	}
	return e
}

// hash returns a key's hash, nil if there is no such key.
func (s *Server) hash(key string) (*entry, error) {
	e := s.find(key)
	if e != nil && e.fields == nil {
		return nil, errWrongType
	}
	return e, nil
}

func (e *entry) get(name string) (string, bool) {
	if e != nil {
		for _, f := range e.fields {
			if f.name == name {
				return f.value, true
			}
		}
	}
	return "", false
}

func (s *Server) set(key, name, value string) *entry {
	e := s.find(key)
	if e == nil {
		e = &entry{}
		s.keys[key] = e
	}
	for i := range e.fields {
		if e.fields[i].name == name {
			e.fields[i].value = value
			return e
		}
	}
	e.fields = append(e.fields, field{name, value})
	return e
}

// expire is PEXPIRE.
func (s *Server) expire(key string, ms int64) {
	if e := s.find(key); e != nil {
		e.expires = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
}

// pttl is PTTL: -2 without the key, -1 without an expiry.
func (s *Server) pttl(key string) int64 {
	e := s.find(key)
	switch {
	case e == nil:
		return -2
	case e.kept > 0:
		return e.kept.Milliseconds()
	case e.expires.IsZero():
		return -1
	}
	return time.Until(e.expires).Milliseconds()
}

// publish is PUBLISH.
func (s *Server) publish(channel, payload string) {
	for c := range s.subscribers[channel] {
		c.push(backend.Event{Kind: backend.Message, Channel: channel, Payload: payload})
	}
}

// Keep has an owner that is no client of ours hold a key until Del, showing always the same remaining lease, as
// if somebody renewed it all the time. It says false when the key exists.
func (s *Server) Keep(key, owner string, lease time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(key) != nil {
		return false
	}
	s.set(key, owner, "1").kept = lease
	return true
}

// Holder is the owner that holds a key, "" if it is free or no lock.
func (s *Server) Holder(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(key); e != nil {
		for _, f := range e.fields {
			if f.name != metaField {
				return f.name
			}
		}
	}
	return ""
}

// Release frees a key if the owner holds it, and wakes who waits on the channel.
func (s *Server) Release(key, owner, channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, own := s.find(key).get(owner); own {
		delete(s.keys, key)
		s.publish(channel, "0")
	}
}

// Take gives a key that is held to another owner, for what is left of the lease.
func (s *Server) Take(key, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(key); e != nil {
		e.fields = []field{{owner, "1"}}
	}
}

// Notify sends, on the control channel of an owner's client, that the owner's lease is in doubt; as soon as that client
// listens.
func (s *Server) Notify(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := clientOf(owner)
	if client == "" {
		return
	}
	heard := false
	for channel := range s.subscribers {
		if strings.HasSuffix(channel, control+client) {
			s.publish(channel, owner)
			heard = true
		}
	}
	if !heard {
		s.notices[client] = append(s.notices[client], owner)
	}
}

// control is what stands between key prefix and client in the name of a control channel.
const control = "lockdog:control:"

// FailRenewals has every renewal fail with err until it is called with nil.
func (s *Server) FailRenewals(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = err
}

// CutOff has the renewals of one owner's hold on a key fail from now on.
func (s *Server) CutOff(key, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutOff[hold{key, owner}] = struct{}{}
}

// Del is DEL, of a key or, with none, of all of them: FLUSHALL. It publishes nothing.
func (s *Server) Del(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(keys) == 0 {
		clear(s.keys)
	}
	for _, key := range keys {
		delete(s.keys, key)
	}
}

// HGetAll is HGETALL.
func (s *Server) HGetAll(key string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]string)
	if e := s.find(key); e != nil {
		for _, f := range e.fields {
			all[f.name] = f.value
		}
	}
	return all
}

// HSet sets a field of a hash, and with a lease its expiry, too.
func (s *Server) HSet(key, name, value string, lease time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(key, name, value)
	if lease > 0 {
		s.expire(key, lease.Milliseconds())
	}
}

// SetString is SET.
func (s *Server) SetString(key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = &entry{text: text}
}

// PTTL is PTTL, in milliseconds: -2 without the key, -1 without an expiry.
func (s *Server) PTTL(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pttl(key)
}

// Keys are the keys there are, sorted.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for key := range s.keys {
		if s.find(key) != nil {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	return names
}

// Backend returns a client's way to the server.
func (s *Server) Backend() backend.Backend { return connection{s} }

// connection is a backend.Backend.
type connection struct{ s *Server }

// timeout is go-redis's default ReadTimeout.
const timeout = 3 * time.Second

// Eval implements backend.Backend.
func (c connection) Eval(_ context.Context, call backend.Call) (any, error) { return c.s.eval(call) }

// EvalEach implements backend.Backend.
func (c connection) EvalEach(_ context.Context, calls []backend.Call) []backend.Result {
	results := make([]backend.Result, len(calls))
	for i, call := range calls {
		results[i].Reply, results[i].Err = c.s.eval(call)
	}
	return results
}

// EvalWait implements backend.Backend: no replica ever confirms, as there is none.
func (c connection) EvalWait(_ context.Context, call backend.Call, _ int, timeout time.Duration) (any, int, error) {
	reply, err := c.s.eval(call)
	time.Sleep(timeout)
	return reply, 0, err
}

// Prepare implements backend.Backend.
func (connection) Prepare(context.Context, string) error { return nil }

// Node implements backend.Backend: there is one.
func (connection) Node(string) string { return "memory" }

// Moved implements backend.Backend.
func (connection) Moved(context.Context) {}

// Traits implements backend.Backend.
func (connection) Traits() backend.Traits {
	return backend.Traits{Publish: "publish", NumSub: "numsub"}
}

// Control implements backend.Backend.
func (connection) Control(string) backend.Station { return backend.Station{} }

// Timeout implements backend.Backend.
func (connection) Timeout() time.Duration { return timeout }

// Close implements backend.Backend.
func (connection) Close() error { return nil }

// Subscribe implements backend.Backend.
func (c connection) Subscribe(context.Context, backend.Station) (backend.PubSub, error) {
	return &conn{s: c.s, channels: make(map[string]struct{}), more: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

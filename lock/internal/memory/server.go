// Package memory is a server for package lock that lives in this process: it runs the very scripts of lock/internal/script, with
// a Lua interpreter, over Redis's commands written in Go. lock/locktest offers it to users' tests.
//
// It does no I/O, and nothing in it blocks but Receive, on channels and a timer: so it works in a bubble of testing/synctest, where
// leases run out in fake time. Replies and errors have the shape that go-redis gives them, so that what reads
// them is tested, too. What a Redis has beyond the needs of our scripts isn't here.
//
// Commands and Lua answer as Redis 7.0 does, which the tests compare, but: a mistake in a script's own Lua is told in the
// interpreter's words; "010" + 1 is 9 (tonumber is right); string.len(1e15) counts all digits (tostring and .. are right). What
// isn't here at all is an error.
package memory

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// Server is the store and its channels. Any number of clients may share it. It is safe for concurrent use.
type Server struct {
	mu          sync.Mutex
	lua         *interpreter
	keys        map[string]*entry
	subscribers map[string]map[*conn]struct{} // by channel
	notices     map[string][]string           // by client: what its control channel has for it when it listens
	failing     error                         // of every renewal, nil: they work
	clock       int64                         // what TIME said last, µs
	cutOff      map[hold]struct{}             // whose renewals fail
	now         time.Time                     // when mu was locked: nothing expires while a script runs
	renewing    bool                          // the script that runs is a renewal
}

// hold is one owner's hold on a key.
type hold struct{ key, owner string }

// The fields of a lock's hash that are no holders.
const (
	metaField = "@lockdog" // in which a holder of ours says more of itself
	modeField = "mode"     // of a read-write lock
)

// control is what stands between key prefix and client in the name of a control channel.
const control = "lockdog:control:"

// writeSuffix ends the owner of a write lease.
const writeSuffix = ":write"

// New returns an empty server.
func New() *Server {
	s := &Server{
		keys:        make(map[string]*entry),
		subscribers: make(map[string]map[*conn]struct{}),
		notices:     make(map[string][]string),
		cutOff:      make(map[hold]struct{}),
	}
	s.lua = newInterpreter(s.do)
	return s
}

// lock locks mu, and says how to unlock it.
func (s *Server) lock() (unlock func()) {
	s.mu.Lock()
	s.now = time.Now()
	return s.mu.Unlock
}

// eval runs a script.
func (s *Server) eval(call backend.Call) (any, error) {
	defer s.lock()()
	if call.Renew && s.failing != nil {
		return nil, s.failing
	}
	s.renewing = call.Renew
	return s.lua.run(call.Script, call.Keys, call.Args)
}

// fields are those of a key's hash; none, if it is no hash.
func (s *Server) fields(key string) []field {
	h, _ := read[hash](s, key)
	return h.all()
}

// Keep has an owner that is no client of ours hold a key until Del, showing always the same remaining lease, as
// if somebody renewed it all the time. It reports false when the key exists.
func (s *Server) Keep(key, owner string, lease time.Duration) bool {
	defer s.lock()()
	if s.find(key) != nil {
		return false
	}
	s.keys[key] = &entry{value: &hash{fields: []field{{owner, "1"}, {metaField, ""}}}, kept: lease}
	return true
}

// Holder is the owner that holds a key, "" if it is free or no lock.
func (s *Server) Holder(key string) string {
	defer s.lock()()
	for _, f := range s.fields(key) {
		if f.name != metaField && f.name != modeField {
			return f.name
		}
	}
	return ""
}

// Holds reports whether an owner is in the hash, or the sorted set, at a key.
func (s *Server) Holds(key, owner string) bool {
	defer s.lock()()
	return s.find(key).holds(owner)
}

// Exists reports whether there is something at a key.
func (s *Server) Exists(key string) bool {
	defer s.lock()()
	return s.find(key) != nil
}

// Release frees a key if the owner holds it, and wakes who waits on the channel.
func (s *Server) Release(key, owner, channel string) {
	defer s.lock()()
	if s.find(key).holds(owner) {
		delete(s.keys, key)
		publish(s, []string{channel, "0"})
	}
}

// Take gives a key that is held to another owner, for what is left of the lease. A read-write lock gets it as its writer, with the name
// that one of Redisson's has.
func (s *Server) Take(key, owner string) {
	defer s.lock()()
	e := s.find(key)
	if e == nil {
		return
	}
	taken := []field{{owner, "1"}, {metaField, ""}}
	if e.holds(modeField) {
		taken = []field{{modeField, "write"}, {owner + writeSuffix, "1"}}
	}
	e.value = &hash{fields: taken}
}

// Notify sends, on the control channel of an owner's client, that the owner's lease is in doubt; as soon as that client
// listens.
func (s *Server) Notify(owner string) {
	defer s.lock()()
	client := clientOf(owner)
	if client == "" {
		return
	}
	heard := false
	for channel := range s.subscribers {
		if strings.HasSuffix(channel, control+client) {
			publish(s, []string{channel, owner})
			heard = true
		}
	}
	if !heard {
		s.notices[client] = append(s.notices[client], owner)
	}
}

// clientOf is the client of an owner, "" if that isn't a client of ours.
func clientOf(owner string) string {
	owner = strings.TrimSuffix(owner, writeSuffix)
	i := strings.LastIndexByte(owner, '-')
	if i <= 0 || i == len(owner)-1 || strings.Trim(owner[i+1:], "0123456789") != "" {
		return ""
	}
	return owner[:i]
}

// FailRenewals has every renewal fail with err until it is called with nil.
func (s *Server) FailRenewals(err error) {
	defer s.lock()()
	s.failing = err
}

// CutOff has the renewals of one owner's hold on a key fail from now on.
func (s *Server) CutOff(key, owner string) {
	defer s.lock()()
	s.cutOff[hold{key, owner}] = struct{}{}
}

// Del is DEL, of a key or, with none, of all of them: FLUSHALL. It publishes nothing.
func (s *Server) Del(keys ...string) {
	defer s.lock()()
	if len(keys) == 0 {
		clear(s.keys)
	}
	del(s, keys)
}

// HGetAll is HGETALL; nothing, if the key is no hash.
func (s *Server) HGetAll(key string) map[string]string {
	defer s.lock()()
	all := make(map[string]string)
	for _, f := range s.fields(key) {
		all[f.name] = f.value
	}
	return all
}

// HSet sets a field of a hash, and with a lease its expiry, too. A key that is no hash becomes one.
func (s *Server) HSet(key, name, value string, lease time.Duration) {
	defer s.lock()()
	h, err := write[hash](s, key)
	if err != nil {
		h = &hash{}
		s.keys[key] = &entry{value: h}
	}
	h.set(name, value)
	if lease > 0 {
		s.keys[key].expires = s.now.Add(lease)
	}
}

// SetString is SET.
func (s *Server) SetString(key, value string) {
	defer s.lock()()
	set(s, []string{key, value})
}

// PTTL is PTTL, in milliseconds: -2 without the key, -1 without an expiry.
func (s *Server) PTTL(key string) int64 {
	defer s.lock()()
	return pttl(s, []string{key}).(int64)
}

// Keys are the keys there are, sorted.
func (s *Server) Keys() []string {
	defer s.lock()()
	var names []string
	for key := range s.keys {
		if s.find(key) != nil {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	return names
}

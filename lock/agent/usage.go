package agent

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// limits are those of what clients may use.
type limits struct {
	sessions  int
	ofUser    int   // sessions of one user of the machine
	ofProcess int   // sessions of one process
	bytes     int64 // of one user, for requests under way, and for locks of which the agent was told
}

var defaultLimits = limits{sessions: 4096, ofUser: 2048, ofProcess: 256, bytes: 128 << 20}

// usage counts what the users of the machine use.
type usage struct {
	limits limits

	mu       sync.Mutex
	sessions int
	users    map[uint32]*user
}

// holder is a session, or a connection that holds a lock or waits for one.
type holder interface {
	list() []heldLock
}

// user is a user of the machine. On systems other than Linux, all are one.
type user struct {
	limits    *limits
	id        uint32
	holders   map[holder]struct{}
	processes map[int]int  // how many holders, by process; see peer
	bytes     atomic.Int64 // see take
	full      sync.Once    // to log it
}

// enter counts a holder and returns its user, or an error that says which limit it exceeds.
func (u *usage) enter(p *peer, h holder) (*user, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.users[p.uid]
	if of == nil {
		of = &user{limits: &u.limits, id: p.uid, holders: make(map[holder]struct{}), processes: make(map[int]int)}
		u.users[p.uid] = of
	}
	switch {
	case u.sessions >= u.limits.sessions:
		return nil, fmt.Errorf("the agent has %d sessions already", u.sessions)
	case len(of.holders) >= u.limits.ofUser:
		return nil, fmt.Errorf("user %d has %d sessions already", p.uid, len(of.holders))
	case p.pid > 0 && of.processes[p.pid] >= u.limits.ofProcess:
		return nil, fmt.Errorf("process %d has %d sessions already", p.pid, of.processes[p.pid])
	}
	u.sessions++
	of.holders[h] = struct{}{}
	of.processes[p.pid]++
	return of, nil
}

// leave ends what enter has begun.
func (u *usage) leave(p *peer, h holder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.users[p.uid]
	u.sessions--
	delete(of.holders, h)
	if of.processes[p.pid]--; of.processes[p.pid] == 0 {
		delete(of.processes, p.pid)
	}
}

// count returns how many sessions there are.
func (u *usage) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sessions
}

// locks returns the locks of some users.
func (u *usage) locks(of func(uid uint32) bool) []heldLock {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := []heldLock{}
	for uid, user := range u.users {
		if !of(uid) {
			continue
		}
		for h := range user.holders {
			all = append(all, h.list()...)
		}
	}
	return all
}

// take counts a request that the agent works on, or a lock that it keeps. It returns false if that is too much.
func (u *user) take(bytes int) bool {
	if u.bytes.Add(int64(bytes)) <= u.limits.bytes {
		return true
	}
	u.give(bytes)
	return false
}

// give ends what take has begun.
func (u *user) give(bytes int) { u.bytes.Add(-int64(bytes)) }

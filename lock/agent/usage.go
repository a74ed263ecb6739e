package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// limits are those of what clients may use.
type limits struct {
	connections int
	ofUser      int   // connections of one user of the machine
	ofProcess   int   // connections of one process
	bytes       int64 // of one user, for requests under way, and for locks of which the agent was told
}

var defaultLimits = limits{connections: 4096, ofUser: 2048, ofProcess: 256, bytes: 128 << 20}

// usage counts what the users of the machine use.
type usage struct {
	limits limits

	mu       sync.Mutex
	visitors int
	users    map[uint32]*user // those that use anything
}

// user is a user of the machine. On systems other than Linux, all are one.
type user struct {
	usage     *usage
	id        uint32
	bytes     atomic.Int64  // see take
	full      sync.Once     // to log it
	nextQueue atomic.Uint32 // see holds.free

	reading sync.Mutex // one line at a time is parsed: a bad one may need a hundred times its length

	// With usage.mu:
	visitors  int
	processes map[int]int // visitors by process; see peer
	holders   map[holder]struct{}
}

// holder is a session, or a connection that holds a lock or waits for one.
type holder interface {
	list() []HeldLock
}

// visitor is a connection of a user. It counts until it is closed and every stay is over.
type visitor struct {
	net.Conn
	peer
	user   *user
	stays  atomic.Int32 // one is the connection's
	closed sync.Once
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	err := v.Conn.Close()
	v.closed.Do(v.leave)
	return err
}

// stay makes the visitor count until leave is called.
func (v *visitor) stay() { v.stays.Add(1) }

func (v *visitor) leave() {
	if v.stays.Add(-1) > 0 {
		return
	}
	u := v.user.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	u.visitors--
	v.user.visitors--
	if v.user.processes[v.pid]--; v.user.processes[v.pid] == 0 {
		delete(v.user.processes, v.pid)
	}
	if v.user.visitors == 0 && v.user.bytes.Load() == 0 {
		delete(u.users, v.user.id)
	}
}

// enter counts a connection. The error says which limit it exceeds.
func (u *usage) enter(c net.Conn, p peer) (*visitor, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.users[p.uid]
	if of == nil {
		of = &user{usage: u, id: p.uid, processes: make(map[int]int), holders: make(map[holder]struct{})}
	}
	switch {
	case u.visitors >= u.limits.connections:
		return nil, fmt.Errorf("the agent has %d connections already", u.visitors)
	case of.visitors >= u.limits.ofUser:
		return nil, fmt.Errorf("user %d has %d connections already", p.uid, of.visitors)
	case p.pid > 0 && of.processes[p.pid] >= u.limits.ofProcess:
		return nil, fmt.Errorf("process %d has %d connections already", p.pid, of.processes[p.pid])
	}
	u.visitors++
	u.users[p.uid] = of
	of.visitors++
	of.processes[p.pid]++
	v := &visitor{Conn: c, peer: p, user: of}
	v.stay()
	return v, nil
}

// add counts a holder, and makes locks list what it holds.
func (of *user) add(h holder) {
	of.usage.mu.Lock()
	defer of.usage.mu.Unlock()
	of.holders[h] = struct{}{}
}

// remove ends what add has begun.
func (of *user) remove(h holder) {
	of.usage.mu.Lock()
	defer of.usage.mu.Unlock()
	delete(of.holders, h)
}

// holders returns how many there are.
func (u *usage) holders() (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, of := range u.users {
		n += len(of.holders)
	}
	return n
}

// locks returns the locks of some users.
func (u *usage) locks(of func(uid uint32) bool) []HeldLock {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := []HeldLock{}
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
func (of *user) take(bytes int) bool {
	if of.bytes.Add(int64(bytes)) <= of.usage.limits.bytes {
		return true
	}
	of.give(bytes)
	return false
}

// give ends what take has begun.
func (of *user) give(bytes int) { of.bytes.Add(-int64(bytes)) }

// listener counts the connections that it accepts, and refuses those that exceed a limit.
type listener struct {
	net.Listener
	usage *usage
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v, err := l.usage.enter(c, peerAt(c))
		if err == nil {
			return v, nil
		}
		refuse(c, http.StatusTooManyRequests, err)
		_ = c.Close()
	}
}

// refuse answers an HTTP request with an error.
func refuse(c net.Conn, status int, err error) {
	line, _ := json.Marshal(failure{err.Error()}) // never fails
	_ = c.SetWriteDeadline(time.Now().Add(replyTime))
	_, _ = fmt.Fprintf(c,
		"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		status, http.StatusText(status), len(line)+1, line)
}

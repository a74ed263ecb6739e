//go:build chaos

package chaos_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// store is what locks are for: something that must not be written to by two at a time. It remembers the largest token it
// has seen of each name, and refuses smaller ones.
type store struct {
	listener net.Listener
	conns    sync.WaitGroup

	mu   sync.Mutex
	last map[string]int64
	log  []history.Event
	open map[net.Conn]bool
}

func startStore(t *testing.T) *store {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &store{listener: l, last: make(map[string]int64), open: make(map[net.Conn]bool)}
	s.conns.Go(s.serve)
	t.Cleanup(s.close)
	return s
}

func (s *store) serve() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		s.open[conn] = true
		s.mu.Unlock()
		s.conns.Go(func() { s.answer(conn) })
	}
}

// answer takes lines "id name owner token" and answers "ok" or "stale".
func (s *store) answer(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var id, name, owner string
		var token int64
		if _, err := fmt.Sscan(lines.Text(), &id, &name, &owner, &token); err != nil {
			return
		}
		if _, err := fmt.Fprintln(conn, s.write(id, name, owner, token)); err != nil {
			return // its process was killed
		}
	}
}

func (s *store) write(id, name, owner string, token int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := history.Event{At: now(), What: history.Write, ID: id, Name: name, Owner: owner, Token: token, Last: s.last[name]}
	answer := "ok"
	if token < s.last[name] {
		e.Why, answer = history.WhyStale, history.WhyStale
	} else {
		s.last[name] = token
	}
	s.log = append(s.log, e)
	return answer
}

func (s *store) events() []history.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log
}

func (s *store) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for conn := range s.open {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.conns.Wait()
}

// storeClient is one connection to the store.
type storeClient struct {
	conn    net.Conn
	answers *bufio.Scanner
}

func dialStore(addr string) (*storeClient, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &storeClient{conn, bufio.NewScanner(conn)}, nil
}

// write reports whether the store took it.
func (c *storeClient) write(id, name, owner string, token int64) (bool, error) {
	if _, err := fmt.Fprintln(c.conn, id, name, owner, token); err != nil {
		return false, err
	}
	if !c.answers.Scan() {
		return false, errors.Join(errors.New("the store hung up"), c.answers.Err())
	}
	return c.answers.Text() == "ok", nil
}

// Package fakeredis is a Redis in this process: a miniredis that is reached over pipes. So real clients and real
// scripts run in the fake time of a synctest bubble.
//
// It lacks Cluster, Sentinel and replicas, ACLs, CLIENT TRACKING, persistence, memory limits, and the text of an error
// that a script raises as a table. WAIT replies at once.
package fakeredis

import (
	"context"
	"net"
	"regexp"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is a miniredis whose keys expire by [time.Now].
type Server struct {
	*miniredis.Miniredis

	mu      sync.Mutex
	serving *server.Server // nil: not open
}

// New returns an empty server that isn't open.
func New() *Server {
	s := &Server{Miniredis: miniredis.NewMiniRedis()}
	s.ClockTTL(true)
	return s
}

// Open makes the server serve connections. After Close it may be called again; the data is kept. hook is called before
// every command; it may be nil.
func (s *Server) Open(hook server.Hook) error {
	first, err := s.Miniredis.Dial() // starts the miniredis
	if err != nil {
		return err
	}
	if err := first.Close(); err != nil {
		return err
	}
	srv := s.Server()
	srv.SetPreHook(hook)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = srv
	return nil
}

// Serve returns true, and serves the connection in the background until the client or Close ends it. If the server
// isn't open, Serve closes the connection and returns false.
func (s *Server) Serve(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving == nil {
		_ = conn.Close()
		return false
	}
	s.serving.ServeConn(scriptErrors{conn})
	return true
}

// Dial connects to the server. It is for [redis.Options].Dialer.
func (s *Server) Dial(context.Context, string, string) (net.Conn, error) { return Dial(s.Serve) }

// Close ends all connections. It waits for running commands.
func (s *Server) Close() {
	s.mu.Lock()
	closed := s.serving == nil
	s.serving = nil
	s.mu.Unlock()
	if !closed {
		s.Miniredis.Close()
	}
}

// Options returns the options of a client in a bubble, without Addrs and Dialer.
func Options() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		// So large that nothing waits for a connection: go-redis reuses the timer of such a wait outside of the bubble,
		// and then the runtime ends the program.
		PoolSize:                 1000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // it would ask DNS
		// No retries: go-redis pauses between dials with a PubSub's mutex held, and a pause of 0 is a timer that is due
		// at once: see Pipe.
		DialerRetries: 1, MaxRetries: -1,
	}
}

// scriptErrors is a connection that rewrites an error in a script to Redis's wording, which begins with the error of
// the command.
type scriptErrors struct{ net.Conn }

var scriptError = regexp.MustCompile(
	`-ERR Error compiling script \(new function\): [^:\r\n]*:([0-9]+): ([^\r\n]*?) stack traceback:[^\r\n]*`)

// Write rewrites replies. p has whole replies, because miniredis flushes after each command.
func (c scriptErrors) Write(p []byte) (int, error) {
	if _, err := c.Conn.Write(
		scriptError.ReplaceAll(p, []byte("-$2 script: of miniredis, on @user_script:$1."))); err != nil {
		return 0, err
	}
	return len(p), nil
}

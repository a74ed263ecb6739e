// Package fakeredis is a Redis in this process, a miniredis that is reached over
// pipes: so real clients and real scripts run in the fake time of a synctest
// bubble.
//
// What it lacks: Cluster, Sentinel and replicas, ACLs, CLIENT TRACKING,
// persistence, memory limits, and the text of an error that a script raises as a
// table. WAIT answers at once.
package fakeredis

import (
	"context"
	"net"
	"regexp"
	"sync"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is a miniredis whose keys expire by [time.Now].
type Server struct {
	*miniredis.Miniredis

	mu      sync.Mutex
	serving *server.Server // nil: nobody is served
}

// New returns an empty server that isn't open.
func New() *Server {
	s := &Server{Miniredis: miniredis.NewMiniRedis()}
	s.ClockTTL(true)
	return s
}

// Open has it serve connections, also again after Close, with the data that it
// had. The hook, if any, is called before every command.
func (s *Server) Open(hook server.Hook) error {
	first, err := s.Miniredis.Dial() // which starts it
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

// Serve answers a connection until Close. After that it closes it, and reports
// false.
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

// Dial is for [redis.Options].Dialer.
func (s *Server) Dial(context.Context, string, string) (net.Conn, error) {
	client, srv := Pipe()
	if !s.Serve(srv) {
		return nil, &net.OpError{Op: "dial", Net: pipeAddr{}.Network(), Err: syscall.ECONNREFUSED}
	}
	return client, nil
}

// Close ends all connections. It waits for the commands under way.
func (s *Server) Close() {
	s.mu.Lock()
	closed := s.serving == nil
	s.serving = nil
	s.mu.Unlock()
	if !closed {
		s.Miniredis.Close()
	}
}

// Options are those of a client in a bubble, but for Addrs and Dialer.
func Options() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		// Nobody may wait for a connection: go-redis would use that wait's timer outside of the bubble, too, and the runtime ends the program.
		PoolSize:                 1000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // it would ask DNS
		// A PubSub has its mutex while it pauses between tries to connect, and a pause of nothing is a timer due at once, see Pipe.
		DialerRetries: 1, MaxRetries: -1,
	}
}

// scriptErrors words an error in a script as Redis does, which begins with the command's own.
type scriptErrors struct{ net.Conn }

var scriptError = regexp.MustCompile(`-ERR Error compiling script \(new function\): [^:\r\n]*:([0-9]+): ([^\r\n]*?) stack traceback:[^\r\n]*`)

// Write gets whole replies: miniredis flushes after each command.
func (c scriptErrors) Write(p []byte) (int, error) {
	if _, err := c.Conn.Write(scriptError.ReplaceAll(p, []byte("-$2 script: of miniredis, on @user_script:$1."))); err != nil {
		return 0, err
	}
	return len(p), nil
}

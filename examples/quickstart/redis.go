package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// server is the Redis of the story: embedded, or a real one.
type server struct {
	opts *redis.Options
	mini *miniredis.Miniredis // nil if the server is real
	cut  atomic.Bool          // connections to a real server fail
}

// startRedis starts an embedded server, or with options checks that a real one answers.
func startRedis(ctx context.Context, opts *redis.Options) (*server, error) {
	if opts == nil {
		mini, err := miniredis.Run()
		if err != nil {
			return nil, fmt.Errorf("the embedded Redis doesn't start: %w", err)
		}
		mini.ClockTTL(true) // otherwise leases would never expire
		return &server{opts: &redis.Options{Addr: mini.Addr()}, mini: mini}, nil
	}
	s := &server{opts: opts}
	dial := redis.NewDialer(opts)
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if s.cut.Load() {
			return nil, errCut
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return cuttable{conn, &s.cut}, nil
	}
	opts.DialerRetries = 1 // lockdog retries, and shows it
	rdb := s.client()
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("no Redis at %s: %w", opts.Addr, err)
	}
	return s, nil
}

// redisOptions parses the value of -redis.
func redisOptions(addr string) (*redis.Options, error) {
	if strings.Contains(addr, "://") {
		return redis.ParseURL(addr)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, errors.New("want host:port or a redis:// URL")
	}
	return &redis.Options{Addr: addr}, nil
}

func (s *server) client() *redis.Client {
	opts := *s.opts
	return redis.NewClient(&opts)
}

// refuse makes every command fail, or lets them succeed again. A real server isn't ours to stop: its connections are cut on our side.
func (s *server) refuse(on bool) {
	switch {
	case s.mini == nil:
		s.cut.Store(on)
	case on:
		s.mini.SetError("LOADING Redis is loading the dataset in memory") // its answer after a restart
	default:
		s.mini.SetError("")
	}
}

// trouble is refuse in words.
func (s *server) trouble() string {
	if s.mini == nil {
		return "All connections to Redis are cut"
	}
	return "Redis refuses all commands"
}

func (s *server) String() string {
	if s.mini == nil {
		return s.opts.Addr
	}
	return "embedded, at " + s.opts.Addr
}

func (s *server) close() {
	if s.mini != nil {
		s.mini.Close()
	}
}

var errCut = &net.OpError{Op: "write", Net: "tcp", Err: errors.New("the quickstart has cut the connections")}

// cuttable is a connection that can be cut.
type cuttable struct {
	net.Conn
	cut *atomic.Bool
}

// Write implements net.Conn.
func (c cuttable) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return 0, errCut
	}
	return c.Conn.Write(b)
}

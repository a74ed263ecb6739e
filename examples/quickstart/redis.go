package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// server is the Redis of the story, and how it gets into trouble.
type server interface {
	client() *redis.Client
	// refuse has every command fail, or lets them through again.
	refuse(on bool)
	// trouble says in words what refuse does.
	trouble() string
	String() string
	close()
}

// startRedis starts an embedded server, or, with an address, makes sure that there is one.
func startRedis(ctx context.Context, addr string) (server, error) {
	if addr == "" {
		mini, err := miniredis.Run()
		if err != nil {
			return nil, fmt.Errorf("the embedded Redis doesn't start: %w", err)
		}
		mini.ClockTTL(true) // else leases would never run out
		return &embedded{mini}, nil
	}
	opts, err := redisOptions(addr)
	if err != nil {
		return nil, err
	}
	r := &remote{opts: opts, dial: redis.NewDialer(opts), open: make(map[*cable]struct{})}
	opts.Dialer = r.connect
	opts.DialerRetries = 1 // lockdog tries again itself, and shows it
	rdb := r.client()
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("no Redis at %s: %w", opts.Addr, err)
	}
	return r, nil
}

// redisOptions reads what -redis can be.
func redisOptions(addr string) (*redis.Options, error) {
	if strings.Contains(addr, "://") {
		return redis.ParseURL(addr)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, errors.New("want host:port or a redis:// URL")
	}
	return &redis.Options{Addr: addr}, nil
}

// embedded is a Redis in this process.
type embedded struct{ mini *miniredis.Miniredis }

func (e *embedded) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: e.mini.Addr()})
}

func (e *embedded) refuse(on bool) {
	if on {
		e.mini.SetError("LOADING Redis is loading the dataset in memory") // what it says after a restart
	} else {
		e.mini.SetError("")
	}
}

func (e *embedded) trouble() string { return "Redis refuses all commands" }
func (e *embedded) String() string  { return "embedded, at " + e.mini.Addr() }
func (e *embedded) close()          { e.mini.Close() }

// remote is a real server. It isn't ours to stop, so the trouble is on our side: the connections to it are cut.
type remote struct {
	opts *redis.Options
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu   sync.Mutex
	cut  bool
	open map[*cable]struct{}
}

func (r *remote) client() *redis.Client {
	opts := *r.opts
	return redis.NewClient(&opts)
}

func (r *remote) trouble() string { return "All connections to Redis are cut" }
func (r *remote) String() string  { return r.opts.Addr }
func (r *remote) close()          {}

func (r *remote) refuse(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = on
	if on {
		for c := range r.open {
			_ = c.Conn.Close()
		}
		clear(r.open)
	}
}

// connect is the dialer of every client.
func (r *remote) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if r.isCut() {
		return nil, errCut
	}
	conn, err := r.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &cable{conn, r}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		_ = conn.Close()
		return nil, errCut
	}
	r.open[c] = struct{}{}
	return c, nil
}

var errCut = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("the quickstart has cut the connections")}

func (r *remote) isCut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut
}

// cable is a connection that can be cut.
type cable struct {
	net.Conn
	r *remote
}

// Close implements net.Conn.
func (c *cable) Close() error {
	c.r.mu.Lock()
	delete(c.r.open, c)
	c.r.mu.Unlock()
	return c.Conn.Close()
}

package lock_test

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// TestRenewalWithoutNewConnections has nobody connect any more once a lock is held. The program's own connections still work, so the lease
// must live.
func TestRenewalWithoutNewConnections(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	do := func(t *testing.T, s *redistest.Server, args ...any) {
		t.Helper()
		if err := s.Client(t).Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for what, bar := range map[string]func(t *testing.T, s *redistest.Server, dials *atomic.Pointer[dialer]){
		"maxclients": func(t *testing.T, s *redistest.Server, _ *atomic.Pointer[dialer]) {
			clients, err := s.Client(t).InfoMap(t.Context(), "clients").Result()
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(clients["Clients"]["connected_clients"])
			if err != nil {
				t.Fatal(err)
			}
			do(t, s, "CONFIG", "SET", "maxclients", n)
		},
		"credentials": func(t *testing.T, s *redistest.Server, _ *atomic.Pointer[dialer]) {
			do(t, s, "ACL", "SETUSER", "default", "resetpass", ">another")
		},
		"firewall, refused": func(_ *testing.T, _ *redistest.Server, dials *atomic.Pointer[dialer]) {
			refused := dialer(func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			})
			dials.Store(&refused)
		},
		"firewall, dropped": func(_ *testing.T, _ *redistest.Server, dials *atomic.Pointer[dialer]) {
			dropped := dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
				select {
				case <-ctx.Done():
				case <-t.Context().Done(): // go-redis dials on when its caller has left
				}
				return nil, context.DeadlineExceeded
			})
			dials.Store(&dropped)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var dials atomic.Pointer[dialer]
			plain := dialer((&net.Dialer{}).DialContext)
			dials.Store(&plain)
			opts := &redis.Options{
				Addr: server.Addr(), ReadTimeout: 5 * time.Second, DialTimeout: 5 * time.Second, DialerRetries: 1,
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					return (*dials.Load())(ctx, network, addr)
				},
			}
			rdb := redis.NewClient(opts)
			defer func() { _ = rdb.Close() }()
			c := newScope(t).open(t, rdb, lock.WithWatchdog(lease))
			l := try(t, c.Mutex("job"))
			// A subscription for forced unlocks is made with the first grant.
			eventually(t, patience, func() bool {
				n, err := server.Client(t).PubSubChannels(t.Context(), "*lockdog:control:*").Result()
				return err == nil && len(n) == 1
			})
			bar(t, server, &dials)
			second := redis.NewClient(opts)
			defer func() { _ = second.Close() }()
			if err := second.Ping(shortly(t)).Err(); err == nil {
				t.Fatal("a new client got in")
			}
			for range 3 {
				renewedPast(t, l, l.Deadline())
				if l.Err() != nil {
					t.Fatalf("the lease ended: %v", l.Err())
				}
			}
			if err := rdb.Ping(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			free(t, l)
		})
	}
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// shortly is a ctx for what has to fail.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

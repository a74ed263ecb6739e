package lock_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Nobody can connect any more once a lock is held. The program's own connections still work, so the lease must live.
func TestRenewalWithoutNewConnections(t *testing.T) {
	t.Parallel()
	do := func(t *testing.T, rdb *redis.Client, args ...any) {
		t.Helper()
		must(t, fmt.Sprint(args...), rdb.Do(t.Context(), args...).Err())
	}
	for what, bar := range map[string]func(t *testing.T, rdb *redis.Client){
		"maxclients": func(t *testing.T, rdb *redis.Client) {
			clients, err := rdb.InfoMap(t.Context(), "clients").Result()
			must(t, "INFO", err)
			do(t, rdb, "CONFIG", "SET", "maxclients", clients["Clients"]["connected_clients"])
		},
		"credentials": func(t *testing.T, rdb *redis.Client) {
			do(t, rdb, "ACL", "SETUSER", "default", "resetpass", ">another")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			renewedWithoutNewConnections(t, srv.Client(t), srv.Client(t), 12*time.Second, func() { bar(t, srv.Client(t)) })
		})
	}
	for what, dialed := range map[string]dialer{
		"firewall, refused": func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		},
		"firewall, dropped": func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute): // go-redis dials on when its caller has left
			}
			return nil, context.DeadlineExceeded
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var barred atomic.Bool
				srv := redistest.StartFake(t)
				open := func() *redis.Client {
					return srv.Client(t, func(o *redis.Options) {
						dial := o.Dialer
						o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
							if barred.Load() {
								return dialed(ctx, network, addr)
							}
							return dial(ctx, network, addr)
						}
					})
				}
				defer time.Sleep(2 * time.Minute) // until go-redis has given up, too
				renewedWithoutNewConnections(t, open(), open(), 3*time.Second, func() { barred.Store(true) })
			})
		})
	}
}

// renewedWithoutNewConnections bars connections, which the second client doesn't have yet, and looks after a lease of the first.
func renewedWithoutNewConnections(t *testing.T, rdb, second *redis.Client, lease time.Duration, bar func()) {
	t.Helper()
	c := newScope(t).open(t, rdb, lock.WithLease(lease))
	l := try(t, c.Mutex("job"))
	// A subscription for forced unlocks is made with the first grant.
	eventually(t, patience, func() bool {
		n, err := rdb.PubSubChannels(t.Context(), "*lockdog:control:*").Result()
		return err == nil && len(n) == 1
	})
	bar()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := second.Ping(ctx).Err(); err == nil {
		t.Fatal("a new client got in")
	}
	for range 2 {
		renewedPast(t, l, l.Deadline())
		must(t, "the lease", l.Err())
	}
	must(t, "PING", rdb.Ping(t.Context()).Err())
	free(t, l)
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

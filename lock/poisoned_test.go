package lock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// poison is how many of the next connections of a client are subscribed to a channel, as soon as they are made: with RESP2 they take no other
// commands any more, and go-redis keeps them.
type poison struct{ left atomic.Int64 }

func (p *poison) into(o *redis.Options) {
	o.Protocol = 2
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if p.left.Add(-1) < 0 {
			return nil
		}
		return cn.Process(ctx, redis.NewCmd(ctx, "subscribe", "somewhere"))
	}
}

// A connection that takes no commands any more is replaced: one of the program's pool, one that lockdog makes for
// renewals, and one of the client given by WithRenewalClient.
func TestPoisonedConnections(t *testing.T) {
	t.Parallel()
	const lease, bad = 3 * time.Second, 3
	t.Run("the program's", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var p poison
			srv := redistest.StartFake(t)
			rdb := srv.Client(t, p.into)
			c := newScope(t).open(t, rdb)
			free(t, try(t, c.Mutex("job"))) // with a good one
			conns := make([]*redis.Conn, bad)
			for i := range conns {
				conns[i] = rdb.Conn()
				must(t, "SUBSCRIBE", conns[i].Process(t.Context(), redis.NewCmd(t.Context(), "subscribe", "somewhere")))
			}
			for _, cn := range conns {
				must(t, "Close", cn.Close())
			}
			for range 2 * bad {
				free(t, try(t, c.Mutex("job")))
			}
			if err := rdb.Get(t.Context(), "job").Err(); err != redis.Nil { //nolint:errorlint // it isn't wrapped
				t.Errorf("the program's own command: %v", err)
			}
		})
	})
	for whose, renewals := range map[string]func(t *testing.T, srv *redistest.Fake, p *poison) []lock.Option{
		"those for renewals": func(*testing.T, *redistest.Fake, *poison) []lock.Option { return nil },
		"those of the client for renewals": func(t *testing.T, srv *redistest.Fake, p *poison) []lock.Option {
			return []lock.Option{lock.WithRenewalClient(srv.Client(t, p.into))}
		},
	} {
		t.Run(whose, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var p poison
				srv := redistest.StartFake(t)
				opts := append(renewals(t, srv, &p), lock.WithLease(lease))
				c := newScope(t).open(t, srv.Client(t, p.into), opts...)
				leases := many(t, c, 5)
				p.left.Store(bad)
				for _, l := range leases {
					renewedPast(t, l, time.Now().Add(lease))
				}
				mustAllLive(t, leases)
				freeAll(t, leases)
			})
		})
	}
}

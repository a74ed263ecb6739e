package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// breaker is a redis.Limiter, a circuit breaker. Any error opens it, except an old server's errors to the commands with
// which go-redis begins a connection.
type breaker struct {
	mu   sync.Mutex
	open bool
}

var errOpen = errors.New("breaker: open")

func (b *breaker) Allow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		return errOpen
	}
	return nil
}

func (b *breaker) ReportResult(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = b.open || err != nil && !strings.Contains(err.Error(), "unknown subcommand")
}

// halfOpen lets calls through, until the next error.
func (b *breaker) halfOpen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = false
}

// TestLimiter checks what a Limiter of the program's client does, such as a circuit breaker. If NOSCRIPT has opened it,
// locks work again as soon as it lets a call through. If the program's own commands have opened it, acquires fail, but
// locks that are held are renewed.
func TestLimiter(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	for shape, open := range map[string]func(t *testing.T, srv *redistest.Fake, b *breaker) redis.UniversalClient{
		"one server": func(t *testing.T, srv *redistest.Fake, b *breaker) redis.UniversalClient {
			return srv.Client(t, func(o *redis.Options) { o.Limiter = b })
		},
		"a ring": func(t *testing.T, srv *redistest.Fake, b *breaker) redis.UniversalClient {
			rdb := redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"one": srv.Addr()}, Limiter: b,
				NewClient: func(o *redis.Options) *redis.Client {
					u := srv.Universal()
					o.Dialer, o.PoolSize, o.MaintNotificationsConfig = u.Dialer, u.PoolSize, u.MaintNotificationsConfig
					return redis.NewClient(o)
				},
				HeartbeatFrequency: time.Hour, // to the Ring a shard is down whose heartbeat the Limiter denies
			})
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		},
	} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv, b := redistest.StartFake(t), &breaker{}
				rdb := open(t, srv, b)
				c := newScope(t).open(t, rdb, lock.WithLease(lease))
				l := try(t, c.Mutex("held"))
				for _, k := range allKinds {
					free(t, try(t, k.make(c, "kind:"+k.name)))
				}

				must(t, "SCRIPT FLUSH", srv.Client(t).ScriptFlush(t.Context()).Err())
				eventually(t, patience, func() bool {
					b.halfOpen()
					l, err := c.Mutex("job").TryLock(t.Context())
					if err == nil {
						free(t, l)
					}
					return err == nil
				})

				if err := rdb.Do(t.Context(), "lpush", "held", "x").Err(); err == nil { // the program's own mistake
					t.Fatal("a lock took an LPUSH")
				}
				opened := time.Now()
				_, err := c.Mutex("job").TryLock(t.Context())
				mustMatch(t, err, lock.ErrUnavailable, errOpen)
				mustMention(t, err, "job", "Limiter")
				renewedPast(t, l, opened.Add(lease+lease/3))
				mustAllLive(t, []*lock.Lease{l})
				b.halfOpen()
				free(t, l)
				for i := range 2 { // all at once share a batch
					freeAll(t, many(t, c, 20+i))
				}
			})
		})
	}
}

// slowLimiter is a redis.Limiter that holds calls up while it is shut.
type slowLimiter struct {
	shut atomic.Pointer[chan struct{}]
	held atomic.Int64
}

func (g *slowLimiter) Allow() error {
	if open := g.shut.Load(); open != nil {
		g.held.Add(1)
		<-*open
	}
	return nil
}

func (g *slowLimiter) ReportResult(error) {}

// A Limiter that blocks holds no call beyond its ctx: no caller runs it.
func TestLimiterThatBlocks(t *testing.T) {
	t.Parallel()
	g := &slowLimiter{}
	rdb := redistest.Start(t).Client(t, func(o *redis.Options) { o.Limiter, o.ContextTimeoutEnabled = g, true })
	c := newScope(t).open(t, rdb)
	for range 50 { // on a busy machine it takes some until Redis was quick
		free(t, try(t, c.Mutex("job")))
	}
	open := make(chan struct{})
	g.shut.Store(&open)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	called := begin(ctx, c.Mutex("job"))
	eventually(t, patience, func() bool { return g.held.Load() > 0 })
	cancel()
	mustMatch(t, await(t, "Lock behind a Limiter", called).err, context.Canceled)
	g.shut.Store(nil)
	close(open)
}

package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/watchdog"
)

// The least that a lock can be, for comparison.
const (
	setNX     = `return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2])`
	deleteOwn = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`
)

// What our scripts have Redis do, and nothing of what they make of it.
const (
	bareAcquire = `redis.call('hgetall', KEYS[1])
redis.call('time')
redis.call('set', KEYS[2], '1000000000000000', 'get')
redis.call('hset', KEYS[1], ARGV[1], '1', '@lockdog', '1000000000000000')
redis.call('pexpire', KEYS[1], ARGV[2])
return 1`
	bareRelease = `redis.call('hmget', KEYS[1], ARGV[1], '@lockdog')
redis.call('del', KEYS[1])
redis.call(ARGV[2], 'redisson_lock__channel:{' .. KEYS[1] .. '}', '0')
return 1`
	bareHeld = `redis.call('hgetall', KEYS[1])
redis.call('time')
redis.call('pttl', KEYS[1])
return 1`
)

// BenchmarkWire says how much of an operation is Redis's and the wire's: what our scripts have Redis do takes as long with nothing around it,
// so no change of ours makes lockdog faster than that. All have the same go-redis client, but for the last of each.
func BenchmarkWire(b *testing.B) {
	const owner, lease = "wire/1:0123456789abcdef-1", 30_000
	srv := redistest.Start(b)
	rdb, heeding := srv.Client(b), srv.Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	take, give, ask := []string{"wire", script.FenceKey("", "wire")}, []string{"wire"}, []string{"held", script.FenceKey("", "held")}
	acquireArgs, releaseArgs := []any{owner, lease, int64(1) << 52, ""}, []any{owner, "publish", "numsub", int(script.WakeOneAnnounced), "", "", "", 0}
	run := func(source string, keys []string, args ...any) func(context.Context) error {
		s := redis.NewScript(source)
		return func(ctx context.Context) error {
			if err := s.Run(ctx, rdb, keys, args...).Err(); !errors.Is(err, redis.Nil) {
				return err
			}
			return nil
		}
	}
	both := func(first, second func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := first(ctx); err != nil {
				return err
			}
			return second(ctx)
		}
	}
	locked := func(c *Client) func(context.Context) error {
		return func(ctx context.Context) error {
			l, err := c.Mutex("wire").TryLock(ctx)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}
	}
	refused := func(c *Client) func(context.Context) error {
		return func(ctx context.Context) error {
			if _, err := c.Mutex("held").TryLock(ctx); !errors.Is(err, ErrHeld) {
				return fmt.Errorf("TryLock of a lock that is held: %w", err)
			}
			return nil
		}
	}
	none := []Option{WithTracerProvider(tracenoop.NewTracerProvider()), WithMeterProvider(metricnoop.NewMeterProvider())}
	plain, heeds := openFor(b, rdb, none...), openFor(b, heeding, none...)
	l, err := plain.Mutex("held").Lock(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Release(context.Background()) })
	if err := rdb.Set(b.Context(), "floor:held", "another", 0).Err(); err != nil {
		b.Fatal(err)
	}
	renew := redis.NewScript(script.Renew.Source)
	together, each := script.NewRenewArgs(0, watchdog.DefaultBatchSize), []backend.Call{} // one call for all, and a call for each
	for i := range watchdog.DefaultBatchSize {
		name := fmt.Sprint("renewed:", i)
		if err := rdb.HSet(b.Context(), name, owner, "1").Err(); err != nil {
			b.Fatal(err)
		}
		together.Add(script.HoldsField, name, owner, int64(lease))
		one := script.NewRenewArgs(0, 1)
		one.Add(script.HoldsField, name, owner, int64(lease))
		each = append(each, one.Call(""))
	}
	all := together.Call("")
	for _, w := range []struct {
		name string
		op   func(context.Context) error
	}{
		{"renew-256/together", func(ctx context.Context) error { return renew.Run(ctx, rdb, all.Keys, all.Args...).Err() }},
		{"renew-256/by-slot", func(ctx context.Context) error { // as where a server wants one slot in a call
			_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, call := range each {
					renew.EvalSha(ctx, p, call.Keys, call.Args...)
				}
				return nil
			})
			return err
		}},
		{"free/SET-NX", both(func(ctx context.Context) error {
			return rdb.SetNX(ctx, "floor", owner, lease*time.Millisecond).Err()
		}, run(deleteOwn, []string{"floor"}, owner))},
		{"free/bare-commands", both(run(bareAcquire, take, acquireArgs...), run(bareRelease, give, releaseArgs...))},
		{"free/scripts", both(run(script.Acquire.Source, take, acquireArgs...), run(script.Release.Source, give, releaseArgs...))},
		{"free/lockdog", locked(plain)},
		{"free/lockdog-ContextTimeoutEnabled", locked(heeds)},
		{"held/SET-NX", run(setNX, []string{"floor:held"}, owner, lease)},
		{"held/bare-commands", run(bareHeld, ask, acquireArgs...)},
		{"held/script", run(script.Acquire.Source, ask, acquireArgs...)},
		{"held/lockdog", refused(plain)},
		{"held/lockdog-ContextTimeoutEnabled", refused(heeds)},
	} {
		b.Run(w.name, func(b *testing.B) {
			ctx := b.Context()
			before := cpuOf(b, srv)
			for b.Loop() {
				if err := w.op(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuOf(b, srv)-before).Microseconds())/float64(b.N), "server-cpu-µs/op")
		})
	}
}

// cpuOf is the processor time that a server has used.
func cpuOf(b *testing.B, srv *redistest.Server) time.Duration {
	b.Helper()
	used := time.Duration(0)
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(srv.Info(b, "cpu")[field], 64)
		if err != nil {
			b.Fatal(err)
		}
		used += time.Duration(seconds * float64(time.Second))
	}
	return used
}

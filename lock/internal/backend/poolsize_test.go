package backend_test

import (
	"runtime"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// PoolSize is what the program asked for, and otherwise go-redis's default, whatever the shape of Redis.
func TestPoolSize(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1" // nothing is sent
	shard := map[string]string{"a": addr}
	for name, c := range map[string]struct {
		rdb  redis.UniversalClient
		want int
	}{
		"a server":           {redis.NewClient(&redis.Options{Addr: addr, PoolSize: 7}), 7},
		"a server, default":  {redis.NewClient(&redis.Options{Addr: addr}), 10 * runtime.GOMAXPROCS(0)},
		"Sentinel":           {redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{addr}, PoolSize: 7}), 7},
		"a Cluster":          {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, PoolSize: 7}), 7},
		"a Cluster, default": {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}}), 5 * runtime.GOMAXPROCS(0)},
		"a Ring":             {redis.NewRing(&redis.RingOptions{Addrs: shard, PoolSize: 7}), 7},
		"a Ring, default":    {redis.NewRing(&redis.RingOptions{Addrs: shard}), 10 * runtime.GOMAXPROCS(0)},
		"a Ring without any": {redis.NewRing(&redis.RingOptions{PoolSize: 7}), 7},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := backend.NewRedis(c.rdb, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.PoolSize(); got != c.want {
				t.Errorf("%d connections, want %d", got, c.want)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if err := c.rdb.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

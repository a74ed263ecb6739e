package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// What Launch starts answers, in a Cluster for every slot, until it is stopped.
func TestLaunch(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string]bool{"server": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs, stop, err := redistest.Launch(cluster)
			if err != nil {
				t.Fatal(err)
			}
			if cluster != (len(addrs) == 3) {
				t.Errorf("%v", addrs)
			}
			rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: cluster, MaxRetries: -1, DialerRetries: 1})
			for _, key := range []string{"a", "b", "c", "d", "e"} { // of all three nodes
				if err := rdb.Set(t.Context(), key, 1, 0).Err(); err != nil {
					t.Error(err)
				}
			}
			if err := rdb.Close(); err != nil {
				t.Error(err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			gone := redis.NewClient(&redis.Options{Addr: addrs[0], MaxRetries: -1, DialerRetries: 1})
			if gone.Ping(t.Context()).Err() == nil {
				t.Error("it still answers")
			}
			_ = gone.Close()
		})
	}
}

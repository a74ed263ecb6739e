package server_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/loadtest/internal/server"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestServer(t *testing.T) {
	t.Parallel()
	r, err := server.Start(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: r.Addrs()[0]})
	defer func() { _ = rdb.Close() }()
	if err := rdb.Set(t.Context(), "a", "b", 0).Err(); err != nil {
		t.Error(err)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if err := rdb.Ping(t.Context()).Err(); err == nil {
		t.Error("it still answers")
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	r, err := server.Start(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: r.Addrs()})
	defer func() { _ = rdb.Close() }()
	nodes := 0
	for _, key := range []string{"a", "b", "c", "d", "e"} { // of all three nodes
		if err := rdb.Set(t.Context(), key, 1, 0).Err(); err != nil {
			t.Error(err)
		}
	}
	err = rdb.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() })
	if err != nil {
		t.Error(err)
	}
	if nodes = len(r.Addrs()); nodes != 3 {
		t.Errorf("%d nodes", nodes)
	}
}

func TestNoServer(t *testing.T) {
	t.Setenv("LOCKDOG_REDIS_SERVER", "no-such-redis-server")
	if _, err := server.Start(t.Context(), false); !errors.Is(err, server.ErrMissing) {
		t.Error(err)
	}
	t.Setenv("LOCKDOG_REDIS_SERVER", "false") // ends at once
	if _, err := server.Start(t.Context(), false); err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	t.Setenv("LOCKDOG_REDIS_SERVER", "redis-server")
	if _, err := server.Start(ctx, false); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

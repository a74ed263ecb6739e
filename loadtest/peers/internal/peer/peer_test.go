package peer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var all = []string{
	peer.Floor, peer.Gate, peer.RawScript, peer.Redislock, peer.Redsync, peer.Rueidislock, peer.Lockdog, peer.LockdogSDK, peer.LockdogLoss,
}

const patience = 2 * time.Minute

// open starts a peer that ends with the test.
func open(t *testing.T, name string, srv *redistest.Server) peer.Locks {
	t.Helper()
	locks, err := peer.Open(name, peer.Config{Addrs: []string{srv.Addr()}, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// forEach runs a test for every peer on a server of its own.
func forEach(t *testing.T, names []string, f func(t *testing.T, name string, srv *redistest.Server)) {
	t.Parallel()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, name, redistest.Start(t))
		})
	}
}

// take has a client take a lock that is free.
func take(t *testing.T, locks peer.Locks, name string) peer.Held {
	t.Helper()
	h, err := locks.Lock(t.Context(), name, false)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func release(t *testing.T, h peer.Held) {
	t.Helper()
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A lock that is held is refused to other clients, whoever asks; released, it is theirs. A release that finds its lock
// gone says so, where the library does.
func TestExclusion(t *testing.T) {
	forEach(t, all, func(t *testing.T, name string, srv *redistest.Server) {
		one, two := open(t, name, srv), open(t, name, srv)
		for range 2 {
			h, err := one.Lock(t.Context(), "a", true)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := two.Lock(t.Context(), "a", false); !errors.Is(err, peer.ErrHeld) {
				t.Fatalf("of a held lock: %v", err)
			}
			release(t, take(t, two, "b"))
			release(t, h)
			release(t, take(t, two, "a"))
		}
		rdb := srv.Client(t)
		if left, err := rdb.Keys(t.Context(), "*a").Result(); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		h := take(t, one, "a")
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if err := h.Release(t.Context()); err == nil && name != peer.Rueidislock {
			t.Error("no error of a lost lock's release")
		}
	})
}

// Who waits has the lock after its release, or goes when its ctx ends.
func TestWaiting(t *testing.T) {
	waiting := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == peer.RawScript }) // it only tries
	forEach(t, waiting, func(t *testing.T, name string, srv *redistest.Server) {
		rounds := 1
		if name == peer.Rueidislock {
			rounds = 5 // it leaves a waiter behind now and then, which is what "stuck" counts
		}
		one, two := open(t, name, srv), open(t, name, srv)
		var err error
		for i := range rounds {
			if err = waits(t, one, two, fmt.Sprint("a", i), patience/time.Duration(rounds)); err == nil {
				return
			}
		}
		t.Error(err)
	})
}

// waits has two wait for one's lock for so long at most.
func waits(t *testing.T, one, two peer.Locks, name string, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	h, err := one.Lock(ctx, name, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []peer.Locks{one, two} {
		short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		if _, err := other.Lock(short, name, true); err == nil {
			t.Fatal("two hold it")
		}
		cancel()
	}
	got := make(chan error, 1)
	go func() {
		h, err := two.Lock(ctx, name, true)
		if err == nil {
			err = h.Release(ctx)
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("it didn't wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}
	return <-got
}

// SendsSet is right: what comes over the network for a lock and its release is two commands, however they are called.
func TestSendsSet(t *testing.T) {
	forEach(t, all, func(t *testing.T, name string, srv *redistest.Server) {
		locks := open(t, name, srv)
		release(t, take(t, locks, "a")) // scripts are known now
		before := srv.Commands(t)
		const cycles = 10
		for range cycles {
			release(t, take(t, locks, "a"))
		}
		d := srv.Commands(t).Since(before)
		scripts := d["evalsha"] + d["eval"]
		want := int64(2 * cycles)
		if peer.SendsSet(name) {
			want -= d["set"]
		}
		if scripts != want || d["set"] == 0 {
			t.Errorf("%v", d)
		}
	})
}

// In a cluster locks of all slots can be had.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	for _, name := range []string{peer.Floor, peer.Lockdog} { // rueidis leaves a goroutine behind for seconds
		t.Run(name, func(t *testing.T) {
			locks, err := peer.Open(name, peer.Config{Addrs: c.Universal().Addrs, Cluster: true, Lease: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"a", "b", "c", "d", "e"} { // of all three nodes
				release(t, take(t, locks, key))
			}
			if err := locks.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nobody", peer.Rueidislock + peer.Pooled, peer.Pooled} {
		if _, err := peer.Open(name, peer.Config{Addrs: []string{"127.0.0.1:1"}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A Pooled peer may have a connection for each of its callers; the others have no more than go-redis's default.
func TestPools(t *testing.T) {
	t.Parallel()
	most := 10 * runtime.GOMAXPROCS(0)
	for _, name := range peer.WithPools(peer.Floor) {
		srv := redistest.Start(t)
		proxy := redistest.NewProxy(t, srv.Addr())
		proxy.SetRule(redistest.When(redistest.Up, redistest.Hold, redistest.Contains("set")))
		before := connections(t, srv)
		cfg := peer.Config{Addrs: []string{proxy.Addr()}, Lease: time.Minute, Callers: 3 * most}
		locks, err := peer.Open(name, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range cfg.Callers {
			all.Go(func() {
				if _, err := locks.Lock(t.Context(), fmt.Sprint(i), true); err != nil {
					t.Error(err)
				}
			})
		}
		held := cfg.Callers
		if name == peer.Floor {
			held = most
		}
		proxy.AwaitHeld(t, held) // so many ask before one is answered
		proxy.SetRule(nil)
		proxy.Release()
		all.Wait()
		opened := connections(t, srv) - before
		if pooled := name != peer.Floor; opened < 2 || opened > cfg.Callers || pooled != (opened > most) {
			t.Errorf("%s: %d connections of %d callers", name, opened, cfg.Callers)
		}
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	}
}

// connections is how many a server has accepted.
func connections(t *testing.T, srv *redistest.Server) int {
	t.Helper()
	n, err := strconv.Atoi(srv.Info(t, "stats")["total_connections_received"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

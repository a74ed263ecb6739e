//go:build interop

package interop_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

const (
	lease  = 6 * time.Second // of watchdogs on both sides: a machine with other work stops a process for a second or two
	prefix = "shop:"         // of WithKeyPrefix here and of the NameMapper there
)

// rig is one Redis with a client of each side.
type rig struct {
	universal *redis.UniversalOptions
	nodes     []*redis.Client
	rdb       redis.UniversalClient
	locks     *lock.Client
	java      *peer
}

// startRig gives one that is to be used when it is ready.
func startRig(t *testing.T, shape string) *rig {
	t.Helper()
	r := &rig{}
	r.universal, r.nodes = startRedis(t, shape)
	r.java = launchJava(t, r.universal.Addrs, prefix, lease)
	r.rdb = redistest.Open(t, r.universal)
	r.locks = newLocks(t, r.rdb)
	return r
}

func (r *rig) ready(t *testing.T) *rig {
	t.Helper()
	r.java.ready(t)
	return r
}

// startRedis gives what clients are told, and a client of each node.
func startRedis(t *testing.T, shape string) (*redis.UniversalOptions, []*redis.Client) {
	t.Helper()
	if shape == "single" {
		s := redistest.Start(t)
		return s.Universal(), []*redis.Client{s.Client(t)}
	}
	var nodes []*redis.Client
	c := redistest.StartCluster(t, 0)
	for _, s := range c.Nodes {
		nodes = append(nodes, s.Client(t))
	}
	return c.Universal(), nodes
}

// newLocks gives a client whose locks carry a trace, so that Java meets all that lockdog keeps beside an owner.
func newLocks(t *testing.T, rdb redis.UniversalClient) *lock.Client {
	t.Helper()
	tracers := sdktrace.NewTracerProvider()
	c, err := lock.New(rdb, lock.WithKeyPrefix(prefix), lock.WithLease(lease), lock.WithTracerProvider(tracers),
		lock.WithLogger(slog.New(slog.DiscardHandler))) // losses are part of the tests
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*lease)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close the client: %v", err)
		}
		if err := tracers.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// pair gives what is the test's own, as each side sees it.
func (r *rig) pair(t *testing.T, k *kind) (ours, remote) {
	t.Helper()
	return r.named(t, k, t.Name())
}

func (r *rig) named(t *testing.T, k *kind, name string) (ours, remote) {
	t.Helper()
	o := k.open(r.locks, name)
	if k.permits {
		set(t, o, 1)
	}
	return o, remote{r.java, k.java, name}
}

// awaitSubscribers waits until that many connections listen for a release of it, in the whole Redis.
func (r *rig) awaitSubscribers(t *testing.T, k *kind, name string, want int64) {
	t.Helper()
	r.awaitListeners(t, k.channel(prefix+name), want)
}

// callChannel is one on which a release calls one client of ours, which listens to all releases, too.
var callChannel = regexp.MustCompile(`:\d{10}$`)

// awaitListeners counts those of the channel, and of channels of single waiters.
func (r *rig) awaitListeners(t *testing.T, channel string, want int64) {
	t.Helper()
	until(t, fmt.Sprintf("%d subscribers of %s", want, channel), func(ctx context.Context) error {
		var got int64
		for _, node := range r.nodes {
			for _, pubsub := range []struct {
				channels func(context.Context, string) *redis.StringSliceCmd
				count    func(context.Context, ...string) *redis.MapStringIntCmd
			}{{node.PubSubChannels, node.PubSubNumSub}, {node.PubSubShardChannels, node.PubSubShardNumSub}} {
				channels, err := pubsub.channels(ctx, channel+"*").Result()
				if err != nil {
					return err
				}
				for _, c := range channels {
					if c != channel && (!strings.HasPrefix(c, channel+":") || callChannel.MatchString(c)) {
						continue
					}
					subscribers, err := pubsub.count(ctx, c).Result()
					if err != nil {
						return err
					}
					got += subscribers[c]
				}
			}
		}
		if got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// leavesNothing fails the test when a key is still there, or the permit isn't.
func (r *rig) leavesNothing(t *testing.T, k *kind, name string) {
	t.Helper()
	for _, key := range k.keys(prefix + name) {
		if n, err := r.rdb.Exists(t.Context(), key).Result(); err != nil || n != 0 {
			t.Errorf("EXISTS %s: %d, %v, want 0", key, n, err)
		}
	}
	if k.permits {
		r.has(t, name, 1)
	}
}

// until polls until ok gives no error, and fails the test with its last one.
func until(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	var last error // of a call that had its time
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, callLimit, last)
		}
	}
}

// grant is what a Lock came to, and when.
type grant struct {
	held
	err error
	at  time.Time
}

// lockSoon waits for it in the background.
func lockSoon(t *testing.T, o ours) <-chan grant {
	t.Helper()
	got := make(chan grant, 1)
	ctx := t.Context()
	go func() {
		h, err := o.take(ctx, true)
		got <- grant{h, err, time.Now()}
	}()
	return got
}

func awaitGrant(t *testing.T, got <-chan grant) grant {
	t.Helper()
	select {
	case g := <-got:
		if g.err != nil {
			t.Fatal(g.err)
		}
		return g
	case <-time.After(callLimit):
		t.Fatalf("still not granted after %v", callLimit)
		panic("unreachable")
	}
}

// tryLock takes what has to be free.
func tryLock(t *testing.T, o ours) held {
	t.Helper()
	h, err := o.take(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// refused fails the test unless it is held, and returns what was said about that.
func refused(t *testing.T, o ours) *lock.HeldError {
	t.Helper()
	_, err := o.take(t.Context(), false)
	var held *lock.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("TryLock: %v, want a HeldError", err)
	}
	return held
}

func release(t *testing.T, h held) {
	t.Helper()
	if err := h.release(t.Context()); err != nil {
		t.Fatalf("release: %v", err)
	}
}

func inspect(t *testing.T, o ours) lock.Holder {
	t.Helper()
	h, err := o.inspected(t).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

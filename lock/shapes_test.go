package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// The conformance suite over the larger shapes. One set of servers per shape is started once, and its tests run side by
// side in corners of their own.

// shapeServers is the servers of one shape.
type shapeServers struct {
	open   func(t *testing.T, protocol int) redis.UniversalClient
	each   func(t *testing.T, rdb redis.UniversalClient, do func(context.Context, *redis.Client) error) // every primary
	others []shapeServers                                                                               // of a quorum the other nodes
}

// serverShape starts the servers of a shape. All clients are made as programs make them. The runs full are made with LOCKDOG_FULL only: in the short
// form every kind runs in the Cluster, which shows what a single server does and more, and a Mutex behind Sentinel, which has plain messages.
type serverShape struct {
	name       string
	runs, full []run
	start      func(t *testing.T) shapeServers
}

var serverShapes = []serverShape{
	{"single", mutexRESP2, everyKind, func(t *testing.T) shapeServers { return universal(redistest.Start(t)) }},
	{"primary+replica", nil, slices.Concat(mutexRESP3, mutexRESP2), func(t *testing.T) shapeServers { return universal(redistest.StartReplicated(t, 1)) }},
	{"sentinel", mutexRESP3, append(everyKind[1:], mutexRESP2...), func(t *testing.T) shapeServers { return universal(redistest.StartSentinel(t, 1)) }},
	{"cluster 3", append(everyKind, run{numbers: true, deadlocks: true, protocol: 3}), mutexRESP2, func(t *testing.T) shapeServers { return universal(redistest.StartCluster(t, 0)) }},
	{"cluster 3+3", nil, slices.Concat(mutexRESP3, mutexRESP2), func(t *testing.T) shapeServers { return universal(redistest.StartCluster(t, 1)) }},
	{"ring 3", mutexRESP3, mutexRESP2, startRingFarm},
	{"3 servers", []run{{kind: quorums, protocol: 3}}, nil, startQuorumFarm},
}

// The runs for the Mutex alone, and for all, the Mutex first.
var (
	mutexRESP2 = []run{{kind: mutexes, protocol: 2}}
	mutexRESP3 = []run{{kind: mutexes, protocol: 3}}
	everyKind  = func() (runs []run) {
		for _, k := range allKinds {
			runs = append(runs, run{kind: k, protocol: 3})
		}
		return slices.Clip(append(runs, run{numbers: true, protocol: 3}))
	}()
)

// universal is a shapeServers that redis.NewUniversalClient makes clients of.
func universal(s interface {
	Universal() *redis.UniversalOptions
},
) shapeServers {
	return shapeServers{
		open: func(t *testing.T, protocol int) redis.UniversalClient {
			o := s.Universal()
			o.Protocol, o.PoolSize, o.ReadTimeout, o.WriteTimeout = protocol, 64, patience, patience
			return redistest.Open(t, o)
		},
		each: func(t *testing.T, rdb redis.UniversalClient, do func(context.Context, *redis.Client) error) {
			t.Helper()
			var err error
			if c, ok := rdb.(*redis.ClusterClient); ok {
				err = c.ForEachMaster(context.Background(), do)
			} else {
				err = do(context.Background(), rdb.(*redis.Client))
			}
			if err != nil {
				t.Errorf("raw: %v", err)
			}
		},
	}
}

func startRingFarm(t *testing.T) shapeServers {
	addrs := make(map[string]string)
	for i := range 3 {
		addrs[fmt.Sprint("shard", i)] = redistest.Start(t).Addr()
	}
	return shapeServers{
		open: func(t *testing.T, protocol int) redis.UniversalClient {
			return openRing(t, &redis.RingOptions{Addrs: addrs, Protocol: protocol, PoolSize: 64, ReadTimeout: patience, WriteTimeout: patience})
		},
		each: func(t *testing.T, rdb redis.UniversalClient, do func(context.Context, *redis.Client) error) {
			t.Helper()
			if err := rdb.(*redis.Ring).ForEachShard(context.Background(), do); err != nil {
				t.Errorf("raw: %v", err)
			}
		},
	}
}

// startQuorumFarm starts servers that know nothing of each other.
func startQuorumFarm(t *testing.T) shapeServers {
	f := universal(redistest.Start(t))
	f.others = []shapeServers{universal(redistest.Start(t)), universal(redistest.Start(t))}
	return f
}

// openRing returns a Ring that is closed when the test ends.
func openRing(t *testing.T, o *redis.RingOptions) *redis.Ring {
	t.Helper()
	r := redis.NewRing(o)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// TestShapes isn't parallel to other tests: it makes more load than they can do with.
func TestShapes(t *testing.T) {
	atOnce := 30 // behaviours, which mostly wait
	var shapes []serverShape
	for _, s := range serverShapes {
		if lock.Full {
			atOnce, s.runs = 120, slices.Concat(s.runs, s.full)
		}
		if len(s.runs) > 0 {
			shapes = append(shapes, s)
		}
	}
	slots := make(chan struct{}, atOnce)
	var all, starting sync.WaitGroup // servers that start take the time of tests that run
	starting.Add(len(shapes))
	for _, s := range shapes {
		all.Go(func() {
			up := sync.OnceFunc(starting.Done)
			defer up() // also when -run leaves the shape out
			t.Run(s.name, func(t *testing.T) {
				f := s.start(t)
				up()
				starting.Wait()
				var shape sync.WaitGroup
				for i, r := range s.runs {
					shape.Go(func() { t.Run(r.String(), func(t *testing.T) { f.conform(t, r, i, slots) }) })
				}
				shape.Wait()
				for i, r := range s.runs {
					t.Run(r.String()+" alone", func(t *testing.T) { f.conform(t, r, i, nil) })
				}
			})
		})
	}
	all.Wait()
}

// run is one kind of lock, or what has no leases, over one protocol.
type run struct {
	kind      kindOfLock
	numbers   bool
	deadlocks bool // with numbers: the wait graph alone. One shape has it, as its many clients keep the machine busy
	protocol  int
}

func (r run) String() string {
	name := r.kind.name
	if r.numbers {
		name = "numbers"
	}
	if r.deadlocks {
		name = "deadlocks"
	}
	return fmt.Sprint(name, " RESP", r.protocol)
}

// tables returns the suite's tables for the n-th run. Each run begins with another table, so that they don't all do the
// same heavy work at the same time.
func (r run) tables(n int) []theme {
	if r.numbers {
		if r.deadlocks {
			return []theme{deadlocks}
		}
		return []theme{numbers, mixed}
	}
	n %= len(themes)
	return slices.Concat(themes[n:], themes[:n])
}

// conform runs the suite over the shapeServers, as their n-th run: with slots the behaviours that can run beside others, without them the rest.
func (f shapeServers) conform(t *testing.T, r run, n int, slots chan struct{}) {
	var rdbs []redis.UniversalClient
	for _, node := range append([]shapeServers{f}, f.others...) {
		rdbs = append(rdbs, node.open(t, r.protocol))
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, theme := range r.tables(n) {
		for i, b := range theme.table {
			if r.kind.why(b.name) != "" || b.timed && !lock.Full {
				continue
			}
			run := func() {
				t.Run(b.name, func(t *testing.T) {
					b.test(t, f.world(t, r.kind, rdbs, fmt.Sprintf("%s%d%s%d:", theme.name, i, r.kind.name, r.protocol)))
				})
			}
			switch {
			case b.alone && slots == nil:
				run()
			case !b.alone && slots != nil:
				slots <- struct{}{}
				all.Go(func() {
					defer func() { <-slots }()
					run()
				})
			}
		}
	}
}

// world is one test's corner of the shapeServers.
func (f shapeServers) world(t *testing.T, k kindOfLock, rdbs []redis.UniversalClient, prefix string) *world {
	w := &world{t: t, kind: k, prefix: prefix}
	var raws severalRaw
	for i, node := range append([]shapeServers{f}, f.others...) {
		w.dials = append(w.dials, func() redis.UniversalClient { return rdbs[i] })
		raws = append(raws, farmRaw{redisRaw{t, rdbs[i], prefix}, node})
	}
	w.raw = raws.raw()
	return w
}

// farmRaw is raw where one server doesn't have it all.
type farmRaw struct {
	redisRaw
	shapeServers shapeServers
}

func (r farmRaw) flush() {
	r.shapeServers.each(r.t, r.rdb, func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
}

// setString overwrites a key where it is. In a Ring that isn't always where its name says: scripts take token counters
// along to the shard of the lock.
func (r farmRaw) setString(key, text string) {
	var found atomic.Bool
	r.shapeServers.each(r.t, r.rdb, func(ctx context.Context, c *redis.Client) error {
		if _, ring := r.rdb.(*redis.Ring); !ring || c.Exists(ctx, key).Val() == 0 {
			return nil
		}
		found.Store(true)
		return c.Set(ctx, key, text, 0).Err()
	})
	if !found.Load() {
		r.redisRaw.setString(key, text)
	}
}

func (r farmRaw) keys() (keys []string) {
	var mu sync.Mutex
	r.shapeServers.each(r.t, r.rdb, func(ctx context.Context, c *redis.Client) error {
		it := c.Scan(ctx, 0, r.prefix+"*", 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			keys = append(keys, it.Val())
			mu.Unlock()
		}
		return it.Err()
	})
	return keys
}

package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// The conformance suite over the larger shapes. One set of servers per shape is started once, and its tests run side by
// side in corners of their own.

// farm is the servers of one shape.
type farm struct {
	open func(t *testing.T, protocol int) redis.UniversalClient
	each func(t *testing.T, rdb redis.UniversalClient, do func(context.Context, *redis.Client) error) // every primary
}

// serverShapes start the servers of each shape. All clients are made as programs make them.
var serverShapes = []struct {
	name  string
	all   bool // every kind of lock, not the Mutex alone
	start func(t *testing.T) farm
}{
	{"primary+replica", false, func(t *testing.T) farm { return universal(redistest.StartReplicated(t, 1)) }},
	{"sentinel", true, func(t *testing.T) farm { return universal(redistest.StartSentinel(t, 1)) }},
	{"cluster 3", true, func(t *testing.T) farm { return universal(redistest.StartCluster(t, 0)) }},
	{"cluster 3+3", false, func(t *testing.T) farm { return universal(redistest.StartCluster(t, 1)) }},
	{"ring 3", false, startRingFarm},
}

// universal is a farm that redis.NewUniversalClient makes clients of.
func universal(s interface {
	Universal() *redis.UniversalOptions
},
) farm {
	return farm{
		open: func(t *testing.T, protocol int) redis.UniversalClient {
			o := s.Universal()
			o.Protocol, o.PoolSize = protocol, 64
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

func startRingFarm(t *testing.T) farm {
	addrs := make(map[string]string)
	for i := range 3 {
		addrs[fmt.Sprint("shard", i)] = redistest.Start(t).Addr()
	}
	return farm{
		open: func(t *testing.T, protocol int) redis.UniversalClient {
			return openRing(t, &redis.RingOptions{Addrs: addrs, Protocol: protocol, PoolSize: 64})
		},
		each: func(t *testing.T, rdb redis.UniversalClient, do func(context.Context, *redis.Client) error) {
			t.Helper()
			if err := rdb.(*redis.Ring).ForEachShard(context.Background(), do); err != nil {
				t.Errorf("raw: %v", err)
			}
		},
	}
}

// openRing returns a Ring that is closed when the test ends.
func openRing(t *testing.T, o *redis.RingOptions) *redis.Ring {
	t.Helper()
	r := redis.NewRing(o)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// themes are the tables of the suite.
var themes = []struct {
	name  string
	table []behaviour
}{
	{"take", takeBehaviours},
	{"wait", waitBehaviours},
	{"lease", leaseBehaviours},
	{"context", contextBehaviours},
	{"reentry", reentryBehaviours},
	{"do", doBehaviours},
	{"close", closeBehaviours},
	{"input", inputBehaviours},
}

// atOnce bounds the behaviours under way. They mostly wait, so more of them than cores do.
const atOnce = 12

// TestShapes isn't parallel to other tests: it makes more load than the tests of promises can do with.
func TestShapes(t *testing.T) {
	var report matrix
	slots := make(chan struct{}, atOnce)
	var all, starting sync.WaitGroup // servers that start take the time of tests that run
	starting.Add(len(serverShapes))
	for _, s := range serverShapes {
		all.Go(func() {
			up := sync.OnceFunc(starting.Done)
			defer up() // also when -run leaves the shape out
			t.Run(s.name, func(t *testing.T) {
				f := s.start(t)
				up()
				starting.Wait()
				var shape sync.WaitGroup
				runs := []run{{mutexes, 3}, {mutexes, 2}}
				if s.all {
					for _, k := range allKinds[1:] {
						runs = append(runs, run{k, 3})
					}
				}
				for _, r := range runs {
					shape.Go(func() {
						t.Run(r.String(), func(t *testing.T) { f.conform(t, r, slots, &report, s.name) })
					})
				}
				shape.Wait()
				for _, r := range runs {
					t.Run(r.String()+" alone", func(t *testing.T) { f.conform(t, r, nil, &report, s.name) })
				}
			})
		})
	}
	all.Wait()
	t.Log(report.String())
}

// run is one kind of lock, over one protocol.
type run struct {
	kind     kindOfLock
	protocol int
}

func (r run) String() string { return fmt.Sprint(r.kind.name, " RESP", r.protocol) }

// conform runs the suite over the farm: with slots the behaviours that can run beside others, without them the rest.
func (f farm) conform(t *testing.T, r run, slots chan struct{}, report *matrix, name string) {
	rdb := f.open(t, r.protocol)
	row := name + " " + r.String()
	var all sync.WaitGroup
	defer all.Wait()
	for _, theme := range themes {
		for i, b := range theme.table {
			if r.kind.but[b.name] != "" {
				continue
			}
			run := func() {
				t.Run(b.name, func(t *testing.T) {
					began := time.Now()
					b.test(t, f.world(t, r.kind, rdb, fmt.Sprintf("%s%d%s%d:", theme.name, i, r.kind.name, r.protocol)))
					report.add(row, theme.name, time.Since(began), t.Failed())
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

// world is one test's corner of the farm.
func (f farm) world(t *testing.T, k kindOfLock, rdb redis.UniversalClient, prefix string) *world {
	return &world{
		t: t, kind: k, prefix: prefix, dial: func() redis.UniversalClient { return rdb },
		raw: farmRaw{redisRaw{t, rdb, prefix}, f},
	}
}

// farmRaw is raw where one server doesn't have it all.
type farmRaw struct {
	redisRaw
	farm farm
}

func (r farmRaw) flush() {
	r.farm.each(r.t, r.rdb, func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
}

// setString overwrites a key where it is. In a Ring that isn't always where its name says: scripts take token counters
// along to the shard of the lock.
func (r farmRaw) setString(key, text string) {
	var found atomic.Bool
	r.farm.each(r.t, r.rdb, func(ctx context.Context, c *redis.Client) error {
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
	r.farm.each(r.t, r.rdb, func(ctx context.Context, c *redis.Client) error {
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

// matrix is what the suite took, shape by theme.
type matrix struct {
	mu    sync.Mutex
	rows  []string
	cells map[[2]string]*cell
}

type cell struct {
	tests, failed int
	took          time.Duration
}

func (m *matrix) add(row, column string, took time.Duration, failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cells == nil {
		m.cells = make(map[[2]string]*cell)
	}
	c := m.cells[[2]string{row, column}]
	if c == nil {
		c = &cell{}
		m.cells[[2]string{row, column}] = c
		if m.cells[[2]string{row, ""}] == nil {
			m.cells[[2]string{row, ""}] = &cell{}
			m.rows = append(m.rows, row)
		}
	}
	c.tests++
	c.took += took
	if failed {
		c.failed++
	}
}

// String is a table. A cell has the seconds that its tests took, one after another.
func (m *matrix) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s strings.Builder
	fmt.Fprintf(&s, "conformance, shape x theme: tests (those failed), their seconds added up\n%-28s", "")
	for _, theme := range themes {
		fmt.Fprintf(&s, "%14s", theme.name)
	}
	for _, row := range m.rows {
		fmt.Fprintf(&s, "\n%-28s", row)
		for _, theme := range themes {
			c := m.cells[[2]string{row, theme.name}]
			if c == nil {
				c = &cell{}
			}
			text := fmt.Sprintf("%d %.1fs", c.tests, c.took.Seconds())
			if c.failed > 0 {
				text = fmt.Sprintf("%d (%d) %.1fs", c.tests, c.failed, c.took.Seconds())
			}
			fmt.Fprintf(&s, "%14s", text)
		}
	}
	return s.String()
}

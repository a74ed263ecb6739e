package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// party is a client that waits: its records are written by hand.
type party struct {
	id     string
	random string
}

func newParty(n int) party { return party{fmt.Sprintf("service-%d", n), fmt.Sprintf("%016x", n)} }

// owner is that of the client's nth lease.
func (p party) owner(n int) string { return fmt.Sprintf("%s:%s-%d", p.id, p.random, n) }

// waits is a wait of the client, for a lock, with its nth owner, which carries the leases of these names.
func (p party) waits(n int, name string, carries ...waitgraph.Hold) waitgraph.Wait {
	return waitgraph.Wait{Waiter: p.owner(n), Name: name, Kind: "mutex", Since: time.UnixMicro(1_795_000_000_000_000 + int64(n)), Holds: carries}
}

// carry is a lease of the client.
func (p party) carry(n int, name string) waitgraph.Hold {
	return waitgraph.Hold{Name: name, Kind: "mutex", Owner: p.owner(n), Token: int64(1_000_000 + n)}
}

// record writes waits as their client does: each in the field of every lease that it carries or, if it carries none, of
// its own owner.
func (r *rig) record(p party, waits ...waitgraph.Wait) {
	r.t.Helper()
	fields := map[string][]waitgraph.Wait{}
	for _, w := range waits {
		for _, h := range w.Holds {
			fields[h.Owner] = append(fields[h.Owner], w)
		}
		if len(w.Holds) == 0 {
			fields[w.Waiter] = append(fields[w.Waiter], w)
		}
	}
	for field, waits := range fields {
		r.field(p.random, field, waitgraph.Encode(waits))
	}
	r.live(p, time.Hour) // longer than a client says: it seems to have been refreshed just now, for as long as a test lasts
	r.alive(p.random, r.now()+3_600_000)
}

// live sets the time after which a client's records expire. A refresh sets it to script.WaitsLife.
func (r *rig) live(p party, life time.Duration) {
	r.t.Helper()
	must(r.t, r.rdb.PExpire(r.t.Context(), r.prefix+"lockdog:waits:{"+p.random+"}", life).Err())
}

func (r *rig) field(random, field, text string) {
	r.t.Helper()
	must(r.t, r.rdb.HSet(r.t.Context(), r.prefix+"lockdog:waits:{"+random+"}", field, text).Err())
}

// alive says until when a client's waits count, ms.
func (r *rig) alive(random string, until int64) {
	r.t.Helper()
	must(r.t, r.rdb.ZAdd(r.t.Context(), r.prefix+"lockdog:waiting", redis.Z{Score: float64(until), Member: random}).Err())
}

// holds writes a lock's hash.
func (r *rig) holds(name string, fields ...any) {
	r.t.Helper()
	pipe := r.rdb.TxPipeline()
	pipe.Del(r.t.Context(), r.prefix+name)
	pipe.HSet(r.t.Context(), r.prefix+name, fields...)
	pipe.PExpire(r.t.Context(), r.prefix+name, time.Hour)
	_, err := pipe.Exec(r.t.Context())
	must(r.t, err)
}

func (r *rig) graph() fleet.Graph {
	r.t.Helper()
	g, err := r.reader.Graph(r.t.Context())
	must(r.t, err)
	return g
}

// graphUntil reads until the graph has so many waits and cycles.
func (r *rig) graphUntil(waits, cycles int) (g fleet.Graph) {
	r.t.Helper()
	eventually(r.t, func() error {
		if g = r.graph(); len(g.Waits) != waits || len(g.Cycles) != cycles {
			return fmt.Errorf("want %d waits, %d cycles:\n%s", waits, cycles, picture(&g))
		}
		return nil
	})
	return g
}

// wantGraph reads the graph, which has to have so many waits and cycles.
func (r *rig) wantGraph(what string, waits, cycles int) {
	r.t.Helper()
	if g := r.graph(); len(g.Waits) != waits || len(g.Cycles) != cycles {
		r.t.Errorf("%s: want %d waits, %d cycles:\n%s", what, waits, cycles, picture(&g))
	}
}

// wantPicture reads the graph, which has to look like that.
func (r *rig) wantPicture(want string) fleet.Graph {
	r.t.Helper()
	g := r.graph()
	wantPicture(r.t, &g, want)
	return g
}

// picture is a Graph in words: each wait, who holds what it waits for, and the cycles.
func picture(g *fleet.Graph) string {
	var out strings.Builder
	for i, w := range g.Waits {
		fmt.Fprintf(&out, "%s waits for %s", w.ClientID, w.Name)
		if l := g.Awaited(i); l != nil {
			var held []string
			for _, h := range l.Holders {
				by := h.ClientID
				if h.Redisson {
					by = "Redisson"
				}
				for _, carrier := range g.Carriers(l.Name, h.Owner) {
					by += fmt.Sprintf("(waits for %s)", g.Waits[carrier].Name)
				}
				held = append(held, by)
			}
			slices.Sort(held)
			fmt.Fprintf(&out, " of %s", strings.Join(held, " and "))
		}
		out.WriteString("\n")
	}
	for _, c := range g.Cycles {
		out.WriteString("cycle:")
		for _, step := range c {
			fmt.Fprintf(&out, " %s of %s waits for %s;", step.Holds.Name, g.Waits[step.Wait].ClientID, g.Waits[step.Wait].Name)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func wantPicture(t *testing.T, g *fleet.Graph, want string) {
	t.Helper()
	if got := picture(g); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// deadlock has three clients wait for each other, with a fourth that waits behind them.
func (r *rig) deadlock() {
	r.t.Helper()
	a, b, c, d := newParty(1), newParty(2), newParty(3), newParty(4)
	r.holds("a", a.owner(11), 1, "@lockdog", "1795000000000011 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	r.holds("b", b.owner(12), 1, "@lockdog", "1795000000000012")
	r.holds("c", c.owner(13), 1, "@lockdog", "1795000000000013")
	first := a.waits(21, "b", a.carry(11, "a"), a.carry(31, "other"))
	first.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	first.Breaks = true
	r.record(a, first)
	r.record(b, b.waits(22, "c", b.carry(12, "b")))
	r.record(c, c.waits(23, "a", c.carry(13, "c")))
	r.record(d, d.waits(24, "a"))
}

const deadlocked = `service-1 waits for b of service-2(waits for c)
service-2 waits for c of service-3(waits for a)
service-3 waits for a of service-1(waits for b)
service-4 waits for a of service-1(waits for b)
cycle: a of service-1 waits for b; b of service-2 waits for c; c of service-3 waits for a;
`

func TestGraph(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		if empty := r.wantPicture(""); empty.Time.IsZero() || empty.More || empty.Unreadable != 0 {
			t.Errorf("%+v", empty)
		}
		r.deadlock()
		g := r.wantPicture(deadlocked)
		a := newParty(1)
		want := fleet.Wait{
			Waiter: a.owner(21), ClientID: "service-1", Name: "b", Kind: "mutex", Since: time.UnixMicro(1_795_000_000_000_021), Breaks: true,
			TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902b7",
			Holds: []fleet.Hold{
				{Name: "a", Kind: "mutex", Owner: a.owner(11), Token: 1_000_011}, {Name: "other", Kind: "mutex", Owner: a.owner(31), Token: 1_000_031},
			},
		}
		if !reflect.DeepEqual(g.Waits[0], want) {
			t.Errorf("got  %+v\nwant %+v", g.Waits[0], want)
		}
		if l := g.Awaited(2); l == nil || l.Name != "a" || l.Holders[0].TraceID != "0af7651916cd43dd8448eb211c80319c" || l.Holders[0].Token != 1_795_000_000_000_011 {
			t.Errorf("%+v", l)
		}
		if since := time.Since(g.Time); !within(since, -time.Minute, time.Minute) || g.More || g.Unreadable != 0 || len(g.Locks) != 3 {
			t.Errorf("%+v", g)
		}
		rigOf(t, r.rdb, r.prefix+"x").wantPicture("") // another prefix
	})
}

// TestGraphCycleDependsOn checks which state of Redis makes two waits a cycle. The shapes of cycles are tested by
// waitgraph.TestGraph_Cycles.
func TestGraphCycleDependsOn(t *testing.T) {
	t.Parallel()
	a, b := newParty(1), newParty(2)
	two := func(r *rig, kind string) { // a has "a" and waits for "b", b has "b" and waits for "a"
		r.holds("a", a.owner(11), 1, "@lockdog", "1")
		r.holds("b", b.owner(12), 1, "@lockdog", "1")
		r.record(a, a.waits(21, "b", a.carry(11, "a")))
		w := b.waits(22, "a", b.carry(12, "b"))
		w.Kind = kind
		r.record(b, w)
	}
	mark := func(r *rig, owners ...string) { // that these holders of "a" are alive
		for _, owner := range owners {
			must(r.t, r.rdb.Set(r.t.Context(), "{"+r.prefix+"a}:"+owner+":rwlock_timeout:1", "1", time.Minute).Err())
		}
	}
	shared := func(r *rig, kind string, alive ...string) { // b is a reader of "a", too
		two(r, kind)
		r.holds("a", "mode", "read", a.owner(11), 1, b.owner(5), 1)
		mark(r, alive...)
	}
	for name, test := range map[string]struct {
		set  func(r *rig)
		want int
	}{
		"the end of the waits":  {func(r *rig) { two(r, "mutex"); r.alive(a.random, r.now()-1) }, 0},
		"readers and a writer":  {func(r *rig) { shared(r, "write", a.owner(11), b.owner(5)) }, 1},
		"readers and a reader":  {func(r *rig) { shared(r, "read", a.owner(11), b.owner(5)) }, 0},
		"a reader that is gone": {func(r *rig) { shared(r, "write", b.owner(5)) }, 0},
		"a writer, whom a reader awaits": {func(r *rig) {
			two(r, "read")
			w := a.carry(11, "a")
			w.Owner += ":write"
			r.holds("a", "mode", "write", w.Owner, 1)
			mark(r, w.Owner)
			r.do("DEL @lockdog:waits:{" + a.random + "}")
			r.record(a, a.waits(21, "b", w))
		}, 1},
		"what another has recorded": {func(r *rig) { // b's wait, as a would have it
			two(r, "mutex")
			r.do("DEL @lockdog:waits:{" + b.random + "}")
			r.record(a, a.waits(21, "b", a.carry(11, "a")), b.waits(22, "a", b.carry(12, "b")))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onFake(t, func(_ *testing.T, r *rig) {
				test.set(r)
				if g := r.graph(); len(g.Cycles) != test.want {
					r.t.Errorf("want %d cycles:\n%s", test.want, picture(&g))
				}
			})
		})
	}
}

// A cycle counts only if two readings find the same one. Redis is read in several commands, so one reading may find a
// cycle that never existed.
func TestGraphReadsACycleTwice(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		r.deadlock()
		b := newParty(2)
		readings := r.readings(func(n int) {
			switch n {
			case 2: // it is gone
				r.holds("b", newParty(9).owner(1), 1, "@lockdog", "1")
			case 4: // another one took its place
				r.holds("b", b.owner(14), 1, "@lockdog", "1")
				r.record(b, b.waits(22, "c", b.carry(12, "b"), b.carry(14, "b")))
			}
		})
		r.wantGraph("gone", 4, 0)
		r.holds("b", b.owner(12), 1, "@lockdog", "1")
		r.wantGraph("another", 4, 0)
		if readings.Load() != 4 {
			t.Errorf("%d readings", readings.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // not enough for a second one
		defer cancel()
		g, err := r.reader.Graph(ctx)
		if len(g.Cycles) != 0 || len(g.Waits) != 4 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v:\n%s", err, picture(&g))
		}
		r.wantGraph("there it is again", 4, 1)
	})
}

// pair has two clients wait for each other.
func (r *rig) pair(n int) (a, b party) {
	r.t.Helper()
	a, b = newParty(n), newParty(n+1)
	for i, p := range []party{a, b} {
		mine, others := fmt.Sprintf("lock:%d", n+i), fmt.Sprintf("lock:%d", n+1-i)
		r.holds(mine, p.owner(11), 1, "@lockdog", "1")
		r.record(p, p.waits(21, others, p.carry(11, mine)))
	}
	return a, b
}

// readings calls a function before each reading, with its number, from 1.
func (r *rig) readings(before func(n int)) *atomic.Int64 {
	var n atomic.Int64
	r.rdb.(*redis.Client).AddHook(beforeEach(func(cmd redis.Cmder) {
		if cmd.Name() == "zrangebyscore" {
			before(int(n.Add(1)))
		}
	}))
	return &n
}

// The records of a process that was killed stay for seconds, and its lease for longer. A wait for that lease that began
// after the kill is no deadlock.
func TestGraphOfADeadClient(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		dead, _ := r.pair(1)
		r.live(dead, script.WaitsLife-1500*time.Millisecond) // its last refresh was so long ago
		began := time.Now()
		r.wantGraph("a dead client", 2, 0)
		if took := time.Since(began); took < time.Second || took > 3*time.Second {
			t.Errorf("took %v", took)
		}

		// A record that is older, or doesn't expire, is in no cycle: it isn't read again for that.
		n := r.readings(func(int) {})
		r.live(dead, script.WaitsLife-3100*time.Millisecond)
		r.wantGraph("an old record", 2, 0)
		r.do("PERSIST @lockdog:waits:{" + dead.random + "}")
		r.wantGraph("a record without end", 2, 0)
		if n.Load() != 2 {
			t.Errorf("%d readings", n.Load())
		}
	})
}

// The same with real clients. The killed one can't write any more, but its lease and its records stay for a while. Then
// the other client begins to wait for it.
func TestGraphOfAKilledClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := redistest.StartFake(t)
		r := rigOf(t, s.Client(t), "")
		proxy := redistest.NewProxy(t, s.Addr())
		own := rigOf(t, s.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), "")
		t.Cleanup(func() { proxy.SetRule(nil); proxy.Release() }) // before the clients are closed
		killed := own.client("killed", lock.WithWaitGraph(100*time.Millisecond), lock.WithLease(time.Minute))
		other := r.client("other", lock.WithWaitGraph(100*time.Millisecond))
		a, b := own.take(killed.Mutex("a")), r.take(other.Mutex("b"))
		own.wait(a.Context(), killed.Mutex("b"))
		r.graphUntil(1, 0)
		proxy.SetRule(redistest.When(redistest.Up, redistest.Hold))
		r.wait(b.Context(), other.Mutex("a"))
		var g fleet.Graph
		eventually(t, func() error {
			if g = r.graph(); len(g.Waits) != 2 { // if there is a cycle to see, this takes as long as it may be one
				return errors.New(picture(&g))
			}
			return nil
		})
		if len(g.Cycles) != 0 {
			t.Errorf("a deadlock of the dead:\n%s", picture(&g))
		}
		proxy.SetRule(nil)
		proxy.Release() // it stood still, and goes on: now it is one
		r.graphUntil(2, 1)
	})
}

// If a client's refresh is late, the graph is read again until it has come.
func TestGraphWaitsForRefreshes(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		a, b := r.pair(1)
		r.live(a, script.WaitsLife)
		r.live(b, script.WaitsLife-500*time.Millisecond)
		n := r.readings(func(n int) {
			r.live(b, script.WaitsLife)
			if n == 3 {
				r.live(a, script.WaitsLife)
			}
		})
		if r.wantGraph("late", 2, 1); n.Load() != 3 {
			t.Errorf("%d readings", n.Load())
		}
	})
}

// The age of a client's records is read before the records. In the opposite order, a refresh in between could remove a
// wait that was just read, and make it look fresh.
func TestGraphAsksForTheAgeFirst(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		a := newParty(1)
		r.record(a, a.waits(21, "lock"))
		var asked []string
		r.rdb.(*redis.Client).AddHook(beforeEach(func(cmd redis.Cmder) {
			if len(cmd.Args()) > 1 && strings.Contains(fmt.Sprint(cmd.Args()[1]), a.random) {
				asked = append(asked, cmd.Name())
			}
		}))
		if r.graph(); !slices.Equal(asked, []string{"pttl", "hscan"}) {
			t.Errorf("%q", asked)
		}
	})
}

// If ctx ends before all cycles are confirmed, Graph returns the confirmed ones and everything else that it has read.
// It returns before the deadline of ctx.
func TestGraphUntilADeadline(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		r.pair(1)
		dead, _ := r.pair(3)
		r.live(dead, script.WaitsLife)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		g, err := r.reader.Graph(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || len(g.Waits) != 4 || len(g.Cycles) != 1 || g.Waits[g.Cycles[0][0].Wait].ClientID != "service-1" {
			t.Errorf("%v, %v:\n%s", err, ctx.Err(), picture(&g))
		}

		// With less time than a refresh takes, one that came early is enough.
		ctx, cancel = context.WithTimeout(t.Context(), 800*time.Millisecond)
		defer cancel()
		r.live(dead, time.Minute)
		if g, err := r.reader.Graph(ctx); err != nil || len(g.Cycles) != 2 {
			t.Errorf("%v:\n%s", err, picture(&g))
		}

		// A ctx that is canceled ends it at once.
		r.live(dead, script.WaitsLife)
		canceled := errors.New("canceled by the test")
		cctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { stop(canceled) })
		began := time.Now()
		if g, err := r.reader.Graph(cctx); !errors.Is(err, canceled) || len(g.Waits) != 4 || len(g.Cycles) != 0 || time.Since(began) != 100*time.Millisecond {
			t.Errorf("%v after %v:\n%s", err, time.Since(began), picture(&g))
		}
	})
}

// beforeEach is a hook that sees each command before it is sent.
type beforeEach func(redis.Cmder)

func (beforeEach) DialHook(next redis.DialHook) redis.DialHook { return next }

func (see beforeEach) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		see(cmd)
		return next(ctx, cmd)
	}
}

func (see beforeEach) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			see(cmd)
		}
		return next(ctx, cmds)
	}
}

// Whoever can write to Redis can write records: what is odd in them is counted, and hides nothing.
func TestGraphOfOddRecords(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		r.deadlock()
		a := newParty(1)
		r.field(a.random, "x", "no JSON")
		r.field(a.random, "y", `[{"w":"`+newParty(2).owner(22)+`","n":"b","k":"mutex","s":1}]`) // of another client
		r.alive("../../etc", r.now()+60_000)
		r.alive("ffffffffffffffff", r.now()+60_000) // without a hash
		r.alive("eeeeeeeeeeeeeeee", r.now()+60_000) // with another thing
		r.do("SET @lockdog:waits:{eeeeeeeeeeeeeeee} x")
		g, err := r.reader.Graph(t.Context())
		if err == nil || !strings.Contains(err.Error(), "eeeeeeeeeeeeeeee") || !strings.Contains(err.Error(), "WRONGTYPE") || g.Unreadable != 3 {
			t.Errorf("%d are unreadable: %v", g.Unreadable, err)
		}
		wantPicture(t, &g, deadlocked)
		r.do("DEL @lockdog:waiting", "SET @lockdog:waiting x")
		if g, err := r.reader.Graph(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || len(g.Waits) != 0 {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

// A key that is awaited as a lock, and holds something else, is no lock, and no error. Redisson's locks and semaphores are shown.
func TestGraphOfOtherKeys(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		r.do("SET @text x", "RPUSH @list x", "HSET @hash field x")
		r.holds("java", uuid+":7", 1)
		r.write(permit, "permits")
		a := newParty(1)
		var waits []waitgraph.Wait
		for i, name := range []string{"text", "list", "hash", "free", "java", "permits"} {
			waits = append(waits, a.waits(i, name))
		}
		r.record(a, waits...)
		g := r.wantPicture(`service-1 waits for text
service-1 waits for list
service-1 waits for hash
service-1 waits for free
service-1 waits for java of Redisson
service-1 waits for permits of 
`)
		if l := g.Awaited(5); l.Kind != fleet.Semaphore || l.Held != 1 {
			t.Errorf("%+v", l)
		}
	})
}

// A Graph that no Reader made: of a user's test, or read back from JSON.
func TestGraphMadeByHand(t *testing.T) {
	t.Parallel()
	g := fleet.Graph{
		Waits: []fleet.Wait{{Waiter: "w", Name: "b", Holds: []fleet.Hold{{Name: "a", Owner: "o"}}}},
		Locks: []fleet.Lock{{Name: "c"}, {Name: "b"}, {Name: "a"}},
	}
	if got := g.Carriers("a", "o"); len(got) != 1 || got[0] != 0 {
		t.Errorf("the waits %v carry a", got)
	}
	if l := g.Awaited(0); l != &g.Locks[1] {
		t.Errorf("awaited: %+v", l)
	}
}

// However many records there are, a Graph is bounded, and says so.
func TestGraphIsBounded(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		for n := range 30 { // so that 1,200 waits are in 30 hashes
			p := newParty(n)
			var waits []waitgraph.Wait
			for i := range 40 {
				waits = append(waits, p.waits(100*n+i, fmt.Sprintf("lock:%d", i)))
			}
			r.record(p, waits...)
		}
		g := r.graph()
		if len(g.Waits) != fleet.MostWaits || !g.More {
			t.Errorf("%d waits, more: %v", len(g.Waits), g.More)
		}
		if g.Waits[0].Waiter != newParty(0).owner(0) || g.Waits[999].Waiter != newParty(24).owner(2439) {
			t.Errorf("not the oldest: from %s to %s", g.Waits[0].Waiter, g.Waits[999].Waiter)
		}
	})
}

// One client with many records, or many clients. On a real server, which gives the records in parts.
func TestGraphOfManyRecordsIsBounded(t *testing.T) {
	t.Parallel()
	for what, write := range map[string]func(r *rig, pipe redis.Pipeliner){
		"many records": func(r *rig, pipe redis.Pipeliner) {
			p := newParty(1)
			r.record(p, p.waits(0, "a"))
			for i := range 25_000 {
				pipe.HSet(r.t.Context(), r.prefix+"lockdog:waits:{"+p.random+"}", p.owner(i), waitgraph.Encode([]waitgraph.Wait{p.waits(0, "a")}))
			}
		},
		"many clients": func(r *rig, pipe redis.Pipeliner) {
			for n := range fleet.MostWaits + 1 {
				pipe.ZAdd(r.t.Context(), r.prefix+"lockdog:waiting", redis.Z{Score: float64(r.now() + 3_600_000), Member: newParty(n).random})
			}
		},
	} {
		r := newRig(t)
		pipe := r.rdb.Pipeline()
		write(r, pipe)
		_, err := pipe.Exec(t.Context())
		must(t, err)
		if g := r.graph(); !g.More {
			t.Errorf("%s: %d waits, and no more", what, len(g.Waits))
		}
	}
}

func TestGraph_Filter(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		r.deadlock()
		p := newParty(7)
		r.holds("z", newParty(8).owner(1), 1, "@lockdog", "1")
		r.record(p, p.waits(25, "z"))
		g := r.graph()
		waits, cycle, _ := strings.Cut(deadlocked, "cycle")
		const z = "service-7 waits for z of service-8\n"
		for pattern, want := range map[string]string{
			"":        waits + z + "cycle" + cycle,
			"c":       deadlocked,
			"oth*":    deadlocked, // which is held beside
			"z":       z,
			"nothing": "",
		} {
			some, err := g.Filter(pattern)
			must(t, err)
			wantPicture(t, &some, want)
		}
		if _, err := g.Filter("["); !errors.Is(err, fleet.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
}

// What real clients write: three services that wait for each other, one behind them, and one behind a reader.
func TestGraphOfClients(t *testing.T) {
	onFake(t, testGraphOfClients)
}

func testGraphOfClients(t *testing.T, r *rig) {
	ctx, tracer, traceID := traced(t)
	names := []string{"a", "b", "c"}
	var clients []*lock.Client
	var leases []*lock.Lease
	for i, name := range names {
		clients = append(clients, r.client("service-"+strings.ToUpper(name), lock.WithTracerProvider(tracer), lock.WithWaitGraph(300*time.Millisecond)))
		leases = append(leases, r.takeCtx(ctx, clients[i].Mutex(name)))
	}
	beside := r.client("beside", lock.WithWaitGraph(300*time.Millisecond))
	r.wait(t.Context(), beside.Mutex("a"))
	reader := r.take(r.client("reader").RWMutex("shared").RLocker())
	r.wait(t.Context(), beside.RWMutex("shared"))
	g := r.graphUntil(2, 0)
	if l := g.Awaited(slices.IndexFunc(g.Waits, func(w fleet.Wait) bool { return w.Name == "shared" })); l == nil || l.Mode != "read" || l.Holders[0].Owner != reader.Owner() {
		t.Errorf("%+v", l)
	}

	for i, lease := range leases {
		r.wait(lease.Context(), clients[i].Mutex(names[(i+1)%3]))
	}
	g = r.graphUntil(5, 1)
	if len(g.Cycles[0]) != 3 || g.Unreadable != 0 {
		t.Errorf("%s", picture(&g))
	}
	for i, step := range g.Cycles[0] {
		w, next := g.Waits[step.Wait], g.Cycles[0][(i+1)%3]
		lease := leases[slices.Index(names, step.Holds.Name)]
		want := fleet.Hold{Name: lease.Name(), Kind: "mutex", Owner: lease.Owner(), Token: lease.Token()}
		if step.Holds != want || w.Name != next.Holds.Name || w.ClientID != "service-"+strings.ToUpper(lease.Name()) || w.TraceID != traceID || w.Kind != "mutex" ||
			!within(time.Since(w.Since), 200*time.Millisecond, 10*patience) {
			t.Errorf("%d: %+v, %+v", i, step, w)
		}
	}

	// It is over once somebody gives up.
	must(t, leases[0].Release(t.Context()))
	eventually(t, func() error {
		if g = r.graph(); len(g.Cycles) != 0 {
			return fmt.Errorf("still a deadlock:\n%s", picture(&g))
		}
		return nil
	})
}

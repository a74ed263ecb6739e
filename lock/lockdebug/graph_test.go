package lockdebug_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

// graphRig is a page with the graph of a Redis, whose records are written by hand. It is in a bubble: a page waits no longer than 2 s for Redis.
type graphRig struct {
	*rig
	srv *redistest.Fake
	rdb *redis.Client
}

func newGraphRig(t *testing.T, change ...func(*lockdebug.Options)) *graphRig {
	t.Helper()
	s := redistest.StartFake(t)
	r := &graphRig{rig: newRig(t), srv: s, rdb: s.Client(t)}
	r.mount(r.rdb, change...)
	return r
}

// mount makes the page one that reads from this client.
func (r *graphRig) mount(rdb *redis.Client, change ...func(*lockdebug.Options)) {
	r.t.Helper()
	reader, err := fleet.New(rdb, "")
	if err != nil {
		r.t.Fatal(err)
	}
	o := lockdebug.Options{Clients: []*lock.Client{r.rig.srv.Client()}, TraceURL: "https://jaeger.example.com/trace/{trace_id}", Fleet: reader}
	for _, f := range change {
		f(&o)
	}
	r.page = lockdebug.Handler(o)
}

func graphOwner(client string, n int) string { return fmt.Sprintf("%s:%016x-%d", client, n, n) }

const graphTrace = "4bf92f3577b34da6a3ce929d0e0e4736"

// waits writes that a client waits for a lock while it holds others, which it takes.
func (r *graphRig) waits(client string, n int, name string, holds ...string) {
	r.t.Helper()
	time.Sleep(time.Millisecond) // no two are as old
	now := time.Now()
	w := waitgraph.Wait{Waiter: graphOwner(client, n), Name: name, Kind: "mutex", Since: now.Add(-time.Minute), Traceparent: "00-" + graphTrace + "-00f067aa0ba902b7-01"}
	pipe := r.rdb.Pipeline()
	field := w.Waiter
	for i, held := range holds {
		owner := fmt.Sprintf("%s:%016x-%d", client, n, 1000+i)
		field = owner
		w.Holds = append(w.Holds, waitgraph.Hold{Name: held, Kind: "mutex", Owner: owner, Token: int64(i + 1)})
		pipe.HSet(r.t.Context(), held, owner, 1, "@lockdog", now.Add(-2*time.Minute).UnixMicro())
	}
	pipe.HSet(r.t.Context(), "lockdog:waits:{"+fmt.Sprintf("%016x", n)+"}", field, waitgraph.Encode([]waitgraph.Wait{w}))
	pipe.PExpire(r.t.Context(), "lockdog:waits:{"+fmt.Sprintf("%016x", n)+"}", time.Hour) // longer than a client says: it seems to have been refreshed just now
	pipe.ZAdd(r.t.Context(), "lockdog:waiting", redis.Z{Score: float64(now.Add(time.Hour).UnixMilli()), Member: fmt.Sprintf("%016x", n)})
	if _, err := pipe.Exec(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// deadlock has orders and billing wait for each other, and web for one of them; and mail for Redisson.
func (r *graphRig) deadlock() {
	r.waits("orders", 1, "account:42", "stock:7")
	r.waits("billing", 2, "stock:7", "account:42")
	r.waits("web", 3, "stock:7")
	r.waits("mail", 4, "java")
	if err := r.rdb.HSet(r.t.Context(), "java", "0f0e0d0c-0102-0304-0506-0708090a0b0c:7", 1).Err(); err != nil {
		r.t.Fatal(err)
	}
}

func TestGraph(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newGraphRig(t)
		if g := r.json("").Graph; g.Total != 0 || g.Cycles == nil || g.Waits == nil || g.Error != "" || g.Time.IsZero() {
			t.Errorf("without waits: %+v", g)
		}
		r.deadlock()
		g := r.json("").Graph
		if len(g.Cycles) != 1 || len(g.Cycles[0]) != 2 || len(g.Waits) != 4 || g.Total != 4 || g.More || g.Error != "" {
			t.Fatalf("%+v", g)
		}
		if c := g.Cycles[0][0]; c.Name != "stock:7" || c.ClientID != "billing" || c.Owner != graphOwner("billing", 2) || c.HoldsName != "account:42" ||
			!strings.HasPrefix(c.HoldsOwner, "billing:") || c.Age < 60 || c.TraceID != graphTrace || c.TraceURL != "https://jaeger.example.com/trace/"+graphTrace || c.Since.IsZero() {
			t.Errorf("%+v", c)
		}
		for i, w := range g.Waits {
			if w.Deadlock != (i < 2) || len(w.HeldBy) != 1 || w.Held != 1 || w.Kind != "mutex" || w.Age < 60 || w.TraceURL == "" || w.HeldBy[0].Redisson != (w.Name == "java") {
				t.Errorf("%d: %+v", i, w)
			}
			if h := w.HeldBy[0]; !h.Redisson && (h.ClientID == "" || h.Age < 120 || h.Since.IsZero()) {
				t.Errorf("%d: %+v", i, h)
			}
		}
		if r.json("?state=waiting").Graph == nil || r.json("?state=lost").Graph != nil {
			t.Error("the graph is read where waits aren't shown, or isn't where they are")
		}
	})
}

func TestGraphIsRedacted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newGraphRig(t, func(o *lockdebug.Options) {
			o.RedactName = func(name string) string { return fmt.Sprintf("name-%d", len(name)) }
			o.RedactOwner = func(owner string) string { return fmt.Sprintf("owner-%x", []byte(owner)) }
		})
		r.deadlock()
		if err := r.rdb.HSet(t.Context(), "lockdog:waits:{"+strings.Repeat("f", 16)+"}", "x", 1).Err(); err != nil {
			t.Fatal(err)
		}
		text := ask(r.page, http.MethodGet, "/?format=json").Body.String()
		if !strings.Contains(text, "name-10") || !strings.Contains(text, "owner-") {
			t.Error("nothing was replaced")
		}
		for _, secret := range []string{"account:42", "stock:7", "billing", "orders", "java", "0f0e0d0c"} {
			if strings.Contains(text, secret) {
				t.Errorf("it says %q", secret)
			}
		}
	})
}

// However many wait, the page is one that somebody can read.
func TestGraphIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newGraphRig(t)
		for i := range 300 {
			r.waits(fmt.Sprintf("web-%d", i), 100+i, "busy")
		}
		for i := range 150 {
			r.waits(fmt.Sprintf("job-%d", i), 1000+i, fmt.Sprintf("lock-%d", i), fmt.Sprintf("mine-%d", i))
		}
		r.deadlock()
		g := r.json("").Graph
		if g.Total != 454 || len(g.Waits) != 100 || !g.Waits[0].Deadlock || !g.Waits[1].Deadlock {
			t.Errorf("%d of %d waits", len(g.Waits), g.Total)
		}
	})
}

// If Redis doesn't answer, the page is served without the graph, and requests that come meanwhile share one reading.
func TestGraphOfSilentRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newGraphRig(t)
		r.deadlock()
		proxy := redistest.NewProxy(t, r.srv.Addr())
		r.mount(r.srv.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })) // which reads for 3 s, three times, whatever the ctx says
		r.hold([]string{"here"})
		if g := r.json("").Graph; len(g.Cycles) != 1 {
			t.Fatalf("%+v", g)
		}
		proxy.SetRule(redistest.When(redistest.Up, redistest.Hold))
		began := time.Now()
		var pages sync.WaitGroup
		for range 20 {
			pages.Go(func() {
				d := r.json("")
				if d.Held.names() != "here" || d.Graph.Error != "no answer from Redis in time" || d.Graph.Total != 0 {
					t.Errorf("%+v, %+v", d.Held, d.Graph)
				}
			})
		}
		pages.Wait()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
		if n := proxy.Conns(); n > 5 {
			t.Errorf("%d connections: the readings add up", n)
		}
		proxy.SetRule(nil)
		proxy.Release()
		time.Sleep(10 * time.Second) // until the last of go-redis's tries has ended
		if g := r.json("").Graph; len(g.Cycles) != 1 {
			t.Errorf("no graph afterwards: %+v", g)
		}
	})
}

// A request that is canceled doesn't wait for Redis.
func TestGraphOfCanceledRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newGraphRig(t)
		proxy := redistest.NewProxy(t, r.srv.Addr())
		r.mount(r.srv.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }))
		proxy.SetRule(redistest.When(redistest.Up, redistest.Hold))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		r.page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/?format=json", http.NoBody))
		if took := time.Since(began); took > 0 {
			t.Errorf("took %v", took)
		}
		proxy.Release()
	})
}

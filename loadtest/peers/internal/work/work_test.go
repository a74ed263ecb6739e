package work_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
	"github.com/lockdog/lockdog/loadtest/peers/internal/witness"
	"github.com/lockdog/lockdog/loadtest/peers/internal/work"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// child is work.Main in this process.
type child struct {
	t   *testing.T
	cfg work.Config
	in  *io.PipeWriter
	out *json.Decoder
	end chan int

	rest io.Reader // what out hasn't read yet
}

func start(t *testing.T, cfg work.Config) *child {
	t.Helper()
	theirIn, in := io.Pipe()
	out, theirOut := io.Pipe()
	c := &child{t: t, cfg: cfg, in: in, out: json.NewDecoder(out), rest: out, end: make(chan int, 1)}
	go func() {
		code := work.Main(theirIn, theirOut)
		_ = theirOut.Close()
		c.end <- code
	}()
	c.send(cfg)
	return c
}

func (c *child) send(v any) {
	c.t.Helper()
	if err := json.NewEncoder(c.in).Encode(v); err != nil {
		c.t.Fatal(err)
	}
}

// reply is a line of a child's.
type reply struct {
	Error  string
	Result work.Result
}

func (c *child) ask(what string) {
	c.t.Helper()
	c.send(fleet.Request{Do: what})
}

func (c *child) warm() reply {
	c.t.Helper()
	c.ask(work.Warm)
	return c.reply()
}

// work has it measure.
func (c *child) work() reply {
	c.t.Helper()
	c.ask(work.Go)
	return c.reply()
}

func (c *child) reply() reply {
	c.t.Helper()
	var r reply
	if err := c.out.Decode(&r); err != nil {
		c.t.Fatal(err)
	}
	return r
}

// finish ends it, and wants that exit code.
func (c *child) finish(code int) {
	c.t.Helper()
	_ = c.in.Close()
	_, _ = io.Copy(io.Discard, c.rest) // a Decoder may leave the end of the last line, for which the child waits
	if got := <-c.end; got != code {
		c.t.Errorf("exit code %d, want %d", got, code)
	}
}

// measure runs all of it.
func measure(t *testing.T, cfg work.Config) work.Result {
	t.Helper()
	c := start(t, cfg)
	if r := c.warm(); r.Error != "" {
		t.Fatalf("warm: %+v", r)
	}
	r := c.work()
	if r.Error != "" {
		t.Fatalf("%+v", r)
	}
	c.finish(0)
	return r.Result
}

func config(srv *redistest.Server, kind, name string, goroutines int) work.Config {
	return work.Config{
		Config: peer.Config{Addrs: []string{srv.Addr()}, Lease: time.Minute, Callers: goroutines}, Kind: kind, Peer: name,
		Warm: 20 * time.Millisecond, Window: 500 * time.Millisecond,
	}
}

// share has the processes of a measurement share a name, and a witness.
func share(t *testing.T, cfg *work.Config) {
	t.Helper()
	var err error
	if cfg.Witness, err = witness.Create(t.TempDir()); err != nil {
		t.Fatal(err)
	}
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// What it counts is what Redis saw.
func TestDistinct(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := measure(t, config(srv, work.Distinct, peer.Floor, 4))
	n := sum(r.Counts)
	if len(r.Counts) != 4 || n == 0 || r.Total.Operations < n || r.Total.Operations > n+4 || r.Times.Count() != r.Total.Operations {
		t.Errorf("%+v", r)
	}
	if sets := srv.Commands(t)["set"]; sets < r.Total.Operations || r.Seconds < .2 {
		t.Errorf("%d SETs for %d operations in %v s", sets, r.Total.Operations, r.Seconds)
	}
	if p50 := r.Times.Quantile(.5); p50 < 10*time.Microsecond || p50.Seconds() > r.Seconds || r.CPU <= 0 || r.Mallocs < uint64(r.Total.Operations) {
		t.Errorf("p50 %v, CPU %v, %d allocations", p50, r.CPU, r.Mallocs)
	}
}

// Two processes share a name: all turns are seen, and no overlap.
func TestShared(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	cfg := config(srv, work.Shared, peer.Lockdog, 3)
	share(t, &cfg)
	cfg.Pause, cfg.Window = time.Millisecond, 5*time.Second
	one := start(t, cfg)
	cfg.Process = 1
	two := start(t, cfg)
	one.ask(work.Warm)
	two.ask(work.Warm)
	if one.reply().Error+two.reply().Error != "" {
		t.Fatal("it failed")
	}
	one.ask(work.Go)
	two.ask(work.Go)
	a, b := one.reply(), two.reply()
	one.finish(0)
	two.finish(0)
	if a.Error+b.Error != "" {
		t.Fatal("it failed")
	}
	for _, r := range []work.Result{a.Result, b.Result} {
		if n := r.Total; n.Between == 0 || n.Handed < n.Between || n.Operations < n.Handed || r.Window.Between > n.Between || r.Handoffs.Count() > n.Between {
			t.Errorf("%+v", r)
		}
		if r.Overlaps != 0 || r.Stuck != 0 || r.Handoffs.Quantile(.5) <= 0 {
			t.Errorf("%d overlaps, %d stuck, handoffs in %v", r.Overlaps, r.Stuck, r.Handoffs.Quantile(.5))
		}
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, name := range []string{peer.RawScript, peer.Lockdog} {
		before := srv.Commands(t)
		r := measure(t, config(srv, work.Held, name, 1))
		d := srv.Commands(t).Since(before)
		if r.Total.Operations == 0 || d["evalsha"] < r.Total.Operations {
			t.Errorf("%s: %d tries, %v", name, r.Total.Operations, d)
		}
		if n, err := srv.Client(t).Exists(t.Context(), "peers:shared").Result(); err != nil || n != 0 {
			t.Errorf("%s: it still holds its lock: %v", name, err)
		}
	}
}

func TestLoss(t *testing.T) {
	t.Parallel()
	for _, name := range []string{peer.Rueidislock, peer.Lockdog, peer.LockdogLoss} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(redistest.Start(t), work.Loss, name, 1)
			cfg.Lease = 12 * time.Second
			r := measure(t, cfg)
			for _, way := range []figures.Key{figures.ToldDel, figures.ToldFlush, figures.ToldForce} {
				if ms := r.Told[way]; ms <= 0 || ms > float64(cfg.Lease.Milliseconds()) {
					t.Errorf("%s: %v ms", way, ms)
				}
			}
			if never, ok := r.Told[figures.ToldNever]; never != 0 || !ok {
				t.Errorf("%v were never told", never)
			}
		})
	}
}

// A peer that tells nobody can't be asked when it does.
func TestLossUntold(t *testing.T) {
	t.Parallel()
	c := start(t, config(redistest.Start(t), work.Loss, peer.Floor, 1))
	c.warm()
	if r := c.work(); !strings.Contains(r.Error, "tells no holder") {
		t.Errorf("%+v", r)
	}
	c.finish(0)
}

// A TryLock that is not refused spoils the measurement, and so does any other error.
func TestHeldNoMore(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(context.Context, *redis.Client) error{
		"free": func(ctx context.Context, rdb *redis.Client) error { return rdb.Del(ctx, "peers:shared").Err() },
		"no lock": func(ctx context.Context, rdb *redis.Client) error {
			return errors.Join(rdb.Del(ctx, "peers:shared").Err(), rdb.LPush(ctx, "peers:shared", "x").Err())
		},
	} {
		srv := redistest.Start(t)
		c := start(t, config(srv, work.Held, peer.Lockdog, 1))
		c.warm()
		if err := spoil(t.Context(), srv.Client(t)); err != nil {
			t.Fatal(err)
		}
		if r := c.work(); !strings.Contains(r.Error, "TryLock of a lock that is held") {
			t.Errorf("%s: %+v", name, r)
		}
		c.finish(1) // it had a lock to release
	}
}

// Somebody else has the name and keeps it: the wait up to the window's end counts, and the waiter is called stuck.
func TestStuck(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	cfg := config(srv, work.Shared, peer.Gate, 1)
	share(t, &cfg)
	c := start(t, cfg)
	c.warm()
	if err := rdb.Set(t.Context(), "peers:shared", "somebody", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	r := c.work().Result
	if r.Stuck != 1 || r.Total.Operations != 0 || figures.Ratio(r.Counts) != 0 {
		t.Fatalf("%+v", r)
	}
	if longest := r.Times.Most; longest < cfg.Window*9/10 || longest > cfg.Window {
		t.Errorf("waited %v of %v", longest, cfg.Window)
	}
	c.finish(0)
}

// A release that is under way at the end of the grace goes on: canceled, it would fail the measurement and leave the lock held.
func TestSlowRelease(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := start(t, config(srv, work.Distinct, peer.Lockdog, 16))
	c.warm()
	c.ask(work.Go)
	time.Sleep(c.cfg.Window / 2) // in the midst of it
	srv.Pause(t)
	time.Sleep(c.cfg.Window + 2500*time.Millisecond) // longer than the grace
	srv.Resume(t)
	if r := c.reply(); r.Error != "" || r.Result.Total.Operations == 0 {
		t.Errorf("%+v", r)
	}
	c.finish(0)
}

// Who does not heed its ctx gives up by its own timeout: the measurement ends, and tells.
func TestHeedless(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := start(t, config(srv, work.Distinct, peer.Floor, 8))
	c.warm()
	srv.Pause(t)
	r := c.work() // before go-redis's timeout of 5 s and another try
	srv.Resume(t)
	if r.Error != "" || r.Result.Total.Operations != 0 || r.Result.Stuck != 8 || r.Result.Unserved != 8 {
		t.Fatalf("%+v", r)
	}
	if p50 := r.Result.Times.Quantile(.5); p50 < c.cfg.Window*9/10 || p50 > c.cfg.Window*101/100 {
		t.Errorf("waited %v of %v", p50, c.cfg.Window)
	}
	c.finish(0)
}

// An error ends it, and is told. So does the end of its input, at any time.
func TestEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	good := config(srv, work.Distinct, peer.Floor, 2)
	for name, spoil := range map[string]func(*work.Config){
		"unknown peer": func(c *work.Config) { c.Peer = "nobody" },
		"no witness":   func(c *work.Config) { c.Kind = work.Shared },
		"no server":    func(c *work.Config) { c.Addrs = []string{"127.0.0.1:1"} },
	} {
		cfg := good
		spoil(&cfg)
		c := start(t, cfg)
		if r := c.warm(); r.Error == "" {
			t.Errorf("%s: no error", name)
		}
		c.finish(0)
	}
	c := start(t, good)
	c.warm()
	c.finish(0)
	good.Window = time.Hour
	c = start(t, good)
	c.warm()
	c.ask(work.Go)
	_ = c.in.Close() // while it works; what it says then nobody hears
	_ = c.reply()
	<-c.end
}

package load_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/hist"
	"github.com/lockdog/lockdog/loadtest/internal/load"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// reply is a line of a child's.
type reply struct {
	Error  string
	Result load.Reading
}

// talker is a child that runs here.
type talker struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *json.Decoder
	rest io.Reader // what out hasn't read yet
	end  chan int
}

func start(t *testing.T, cfg load.Config) *talker {
	t.Helper()
	theirIn, in := io.Pipe()
	out, theirOut := io.Pipe()
	c := &talker{t, in, json.NewDecoder(out), out, make(chan int, 1)}
	go func() {
		code := load.Main(theirIn, theirOut)
		_ = theirOut.Close()
		c.end <- code
	}()
	c.send(cfg)
	return c
}

func (c *talker) send(v any) {
	c.t.Helper()
	if err := json.NewEncoder(c.in).Encode(v); err != nil {
		c.t.Fatal(err)
	}
}

// ask wants an answer that is no error.
func (c *talker) ask(what string) load.Reading {
	c.t.Helper()
	c.send(fleet.Request{Do: what})
	var r reply
	if err := c.out.Decode(&r); err != nil || (r.Error != "") != (what == "dance") {
		c.t.Fatalf("%s: %v %s", what, err, r.Error)
	}
	return r.Result
}

func (c *talker) finish() {
	c.t.Helper()
	_ = c.in.Close()
	_, _ = io.Copy(io.Discard, c.rest) // a Decoder may leave the end of the last line, for which the child waits
	if code := <-c.end; code != 0 {
		c.t.Errorf("exit code %d", code)
	}
}

// TestHolders takes and releases locks in every mode that is Go. A lock that somebody took away is told when it is
// released.
func TestHolders(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{load.None, load.PerLock, load.Batched} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			c := start(t, load.Config{Mode: mode, Addrs: []string{srv.Addr()}, First: 5, Locks: 10, Lease: 30, Hold: 60})
			c.ask(load.Warm)
			c.ask(load.Read)
			c.ask(load.Acquire)
			r := c.ask(load.Read)
			// Nothing was renewed yet: nine locks are nine calls at most, some together, after the one of the warming up. Renewals of
			// the warming up may still be on their way, a call for all of them. Its leases are short, so some may have been lost, and that
			// may be told late. That none of the ten was shows at the release.
			late := map[string]int64{load.None: 3, load.Batched: 3}[mode]
			if n := r.Count(load.Calls, "acquire"); n < 1 || n > 9 || r.Count(load.Calls, "renew") > late || r.CPU <= 0 {
				t.Errorf("%+v", r)
			}
			if r := c.ask(load.Weigh); r.Heap <= 0 || r.Stacks <= 0 || r.Goroutines <= 0 {
				t.Errorf("%+v", r)
			}
			c.ask("dance")
			if n, err := srv.Client(t).Del(t.Context(), load.Name(6)).Result(); err != nil || n != 1 {
				t.Fatalf("%d keys, %v", n, err)
			}
			if r := c.ask(load.Release); r.Released != 9 || r.Lost != 1 {
				t.Errorf("released %d, lost %d", r.Released, r.Lost)
			}
			c.finish()
		})
	}
}

// TestForeground measures each command that it sends.
func TestForeground(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	f, err := load.StartForeground(t.Context(), []string{srv.Addr()}, false, 2000)
	if err != nil {
		t.Fatal(err)
	}
	var all hist.Hist
	for range 200 {
		all.Merge(f.Take())
		time.Sleep(time.Millisecond)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	all.Merge(f.Take())
	executed := srv.Commands(t)
	sent := executed["get"] + executed["set"] - 1000 // the thousand keys are set first
	if sent == 0 || sent != all.Count() || executed["set"] < 1000 || all.Quantile(.5) <= 0 {
		t.Errorf("measured %d, executed %d", all.Count(), sent)
	}
}

// TestForegroundNeedsRedis: without Redis it says so.
func TestForegroundNeedsRedis(t *testing.T) {
	t.Parallel()
	if _, err := load.StartForeground(t.Context(), []string{"127.0.0.1:1"}, false, 1); err == nil {
		t.Error("no error")
	}
}

// The names of the Java client are the same: what was measured first is the same locks again.
func TestNames(t *testing.T) {
	t.Parallel()
	if name := load.Name(0); name != "loadtest:e220a8397b1dcdaf" {
		t.Error(name)
	}
	seen := make(map[string]bool)
	for i := range 100_000 {
		name := load.Name(i)
		if seen[name] {
			t.Fatalf("%s twice", name)
		}
		seen[name] = true
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for input, code := range map[string]int{
		"":    0, // the parent was gone at once
		"x\n": 1,
		`{"mode":"dancer","addrs":["localhost:1"]}` + "\n":                                 1,
		`{"mode":"batched","addrs":["localhost:1"],"lease":0.001}` + "\n":                  1,
		fmt.Sprintf(`{"mode":"batched","addrs":["localhost:1"],"lease":%v}`, 30) + "\nx\n": 1,
	} {
		var out bytes.Buffer
		if got := load.Main(strings.NewReader(input), &out); got != code {
			t.Errorf("%q: exit code %d, want %d", input, got, code)
		}
	}
}

// TestEndOfInput: a child whose parent is gone releases what it holds.
func TestEndOfInput(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{load.PerLock, load.Batched} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			c := start(t, load.Config{Mode: mode, Addrs: []string{srv.Addr()}, Locks: 10, Lease: 30})
			c.ask(load.Warm)
			c.ask(load.Acquire)
			c.finish()
			left, err := srv.Client(t).Keys(t.Context(), "loadtest:*").Result()
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

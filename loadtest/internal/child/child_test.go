package child_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/loadtest/internal/child"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// reply is a line of a child's.
type reply struct {
	Error  string
	Result child.Reading
}

// talker is a child that runs here.
type talker struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *json.Decoder
	rest io.Reader // what out hasn't read yet
	end  chan int
}

func start(t *testing.T, cfg child.Config) *talker {
	t.Helper()
	theirIn, in := io.Pipe()
	out, theirOut := io.Pipe()
	c := &talker{t, in, json.NewDecoder(out), out, make(chan int, 1)}
	go func() {
		code := child.Main(theirIn, theirOut)
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
func (c *talker) ask(what string) child.Reading {
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
	for _, mode := range []string{child.None, child.PerLock, child.Batched} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			c := start(t, child.Config{Role: mode, Addrs: []string{srv.Addr()}, First: 5, Locks: 10, Lease: 30, Hold: 60})
			c.ask(child.Warm)
			c.ask(child.Read)
			c.ask(child.Acquire)
			r := c.ask(child.Read)
			// Nothing was renewed yet: nine locks are nine calls at most, some together, after the one of the warming up. Renewals of
			// the warming up may still be on their way, a call for all of them.
			late := map[string]int64{child.None: 3, child.Batched: 3}[mode]
			if n := r.Count(child.Calls, "acquire"); n < 1 || n > 9 || r.Count(child.Calls, "renew") > late || r.Total(child.Losses) != 0 || r.CPU <= 0 {
				t.Errorf("%+v", r)
			}
			if r := c.ask(child.Weigh); r.Heap <= 0 || r.Stacks <= 0 || r.Goroutines <= 0 {
				t.Errorf("%+v", r)
			}
			c.ask("dance")
			if n, err := srv.Client(t).Del(t.Context(), child.Name(6)).Result(); err != nil || n != 1 {
				t.Fatalf("%d keys, %v", n, err)
			}
			if r := c.ask(child.Release); r.Released != 9 || r.Lost != 1 {
				t.Errorf("released %d, lost %d", r.Released, r.Lost)
			}
			c.finish()
		})
	}
}

// TestForeground counts and measures what it sends.
func TestForeground(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := start(t, child.Config{Role: child.Foreground, Addrs: []string{srv.Addr()}, Rate: 2000})
	c.ask(child.Warm)
	c.ask(child.Acquire)
	var all child.Reading
	for range 200 {
		r := c.ask(child.Read)
		all.Add(&r)
	}
	c.ask(child.Release)
	r := c.ask(child.Read)
	all.Add(&r)
	c.finish()
	latency, executed := all.Times[child.Latency], srv.Commands(t)
	sent, want := all.Total(child.Sent), executed["get"]+executed["set"]-1000 // the thousand keys are set first
	if sent == 0 || sent != latency.Count() || sent != want || all.Total(child.Errors) != 0 {
		t.Errorf("sent %d, measured %d, executed %d: %v", sent, latency.Count(), want, all.Counts)
	}
}

// The names of the Java client are the same: what was measured first is the same locks again.
func TestNames(t *testing.T) {
	t.Parallel()
	if name := child.Name(0); name != "loadtest:e220a8397b1dcdaf" {
		t.Error(name)
	}
	seen := make(map[string]bool)
	for i := range 100_000 {
		name := child.Name(i)
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
		`{"role":"dancer","addrs":["localhost:1"]}` + "\n":                                 1,
		`{"role":"batched","addrs":["localhost:1"],"lease":0.001}` + "\n":                  1,
		fmt.Sprintf(`{"role":"batched","addrs":["localhost:1"],"lease":%v}`, 30) + "\nx\n": 1,
	} {
		var out bytes.Buffer
		if got := child.Main(strings.NewReader(input), &out); got != code {
			t.Errorf("%q: exit code %d, want %d", input, got, code)
		}
	}
}

// TestEndOfInput: a child whose parent is gone releases what it holds.
func TestEndOfInput(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{child.PerLock, child.Batched} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			c := start(t, child.Config{Role: mode, Addrs: []string{srv.Addr()}, Locks: 10, Lease: 30})
			c.ask(child.Warm)
			c.ask(child.Acquire)
			c.finish()
			left, err := srv.Client(t).Keys(t.Context(), "loadtest:*").Result()
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

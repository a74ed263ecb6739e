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
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// talk runs a child, here, that is asked one thing after the other, and returns its replies.
func talk(t *testing.T, cfg wire.Config, requests ...wire.Request) []wire.Reply {
	t.Helper()
	in, parent := io.Pipe()
	replies, out := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- child.Main(in, out)
		_ = out.Close()
	}()
	send := func(v any) {
		if err := json.NewEncoder(parent).Encode(v); err != nil {
			t.Error(err)
		}
	}
	send(cfg)
	var got []wire.Reply
	lines := json.NewDecoder(replies)
	for _, req := range requests {
		send(req)
		var r wire.Reply
		if err := lines.Decode(&r); err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	_ = parent.Close()
	if c := <-code; c != 0 {
		t.Errorf("exit code %d", c)
	}
	return got
}

func do(what string) wire.Request { return wire.Request{Do: what} }

// TestHolders takes and releases locks in every mode that is Go.
func TestHolders(t *testing.T) {
	t.Parallel()
	for seed, mode := range []string{wire.None, wire.PerLock, wire.Batched} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			cfg := wire.Config{Role: mode, Addrs: []string{srv.Addr()}, Seed: uint64(seed), First: 5, Locks: 10, Lease: 30, Hold: 60}
			got := talk(t, cfg, do(wire.DoWarm), do(wire.DoRead), do(wire.DoAcquire), do(wire.DoRead), do(wire.DoWeigh), do("dance"), do(wire.DoRelease))
			for i, r := range got {
				if (r.Error != "") != (i == 5) {
					t.Errorf("%s: %s", r.Did, r.Error)
				}
			}
			// Nothing was renewed yet: nine locks are nine calls at most, some together, after the one of the warming up. Renewals of
			// the warming up may still be on their way, a call for all of them.
			late := map[string]int64{wire.None: 3, wire.Batched: 3}[mode]
			if r := got[3].Reading; r == nil || r.Counts[wire.Calls]["acquire"] < 1 || r.Counts[wire.Calls]["acquire"] > 9 || r.Counts[wire.Calls]["renew"] > late || r.Total(wire.Losses) != 0 || r.CPU <= 0 {
				t.Errorf("%+v", r)
			}
			if w := got[4].Weight; w == nil || w.Heap <= 0 || w.Stacks <= 0 || w.Goroutines <= 0 {
				t.Errorf("%+v", w)
			}
			if r := got[6]; r.Released != 10 || r.Lost != 0 {
				t.Errorf("released %d, lost %d", r.Released, r.Lost)
			}
		})
	}
}

// TestLost: a lock that somebody took away is told when it is released.
func TestLost(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{wire.PerLock, wire.Batched} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			rdb := srv.Client(t)
			cfg := wire.Config{Role: mode, Addrs: []string{srv.Addr()}, Seed: 1, Locks: 3, Lease: 30}
			in, parent := io.Pipe()
			replies, out := io.Pipe()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				child.Main(in, out)
			}()
			lines := json.NewDecoder(replies)
			var r wire.Reply
			ask := func(v any) {
				t.Helper()
				if err := json.NewEncoder(parent).Encode(v); err != nil {
					t.Fatal(err)
				}
				if err := lines.Decode(&r); err != nil || r.Error != "" {
					t.Fatalf("%v %s", err, r.Error)
				}
			}
			if err := json.NewEncoder(parent).Encode(cfg); err != nil {
				t.Fatal(err)
			}
			ask(do(wire.DoWarm))
			ask(do(wire.DoAcquire))
			if n, err := rdb.Del(t.Context(), wire.Name(1, 1)).Result(); err != nil || n != 1 {
				t.Fatalf("%d keys, %v", n, err)
			}
			ask(do(wire.DoRelease))
			if r.Released != 2 || r.Lost != 1 {
				t.Errorf("released %d, lost %d", r.Released, r.Lost)
			}
			_ = parent.Close()
			<-ended
		})
	}
}

// TestForeground counts and measures what it sends.
func TestForeground(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	cfg := wire.Config{Role: wire.Foreground, Addrs: []string{srv.Addr()}, Rate: 2000}
	requests := []wire.Request{do(wire.DoWarm), do(wire.DoAcquire)}
	for range 200 {
		requests = append(requests, do(wire.DoRead))
	}
	var sent, measured int64
	for _, r := range talk(t, cfg, append(requests, do(wire.DoRelease), do(wire.DoRead))...) {
		if r.Error != "" {
			t.Errorf("%s: %s", r.Did, r.Error)
		}
		if r.Reading != nil {
			sent += r.Reading.Total(wire.Sent)
			measured += r.Reading.Time(wire.Latency).Count()
			if n := r.Reading.Total(wire.Errors); n != 0 {
				t.Errorf("%d errors", n)
			}
		}
	}
	c := srv.Commands(t)
	if executed := c["get"] + c["set"] - 1000; sent == 0 || sent != measured || sent != executed { // the thousand keys are set first
		t.Errorf("sent %d, measured %d, executed %d", sent, measured, executed)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for input, code := range map[string]int{
		"":    0, // the parent was gone at once
		"x\n": 1,
		`{"role":"dancer","addrs":["localhost:1"]}` + "\n":                                 1,
		`{"role":"batched","addrs":["nowhere"]}` + "\n":                                    1,
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
	for _, mode := range []string{wire.PerLock, wire.Batched} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			cfg := wire.Config{Role: mode, Addrs: []string{srv.Addr()}, Seed: 3, Locks: 10, Lease: 30}
			talk(t, cfg, do(wire.DoWarm), do(wire.DoAcquire))
			left, err := srv.Client(t).Keys(t.Context(), "loadtest:*").Result()
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

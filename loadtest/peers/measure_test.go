package peers

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/delay"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
)

const (
	// patience bounds one call of a benchmark, whose callers may get no further.
	patience = 5 * time.Minute
	// poll is the time between two looks at the number of operations. Only the parent looks: a timer in a child would
	// change how its goroutines take turns.
	poll = 5 * time.Millisecond
)

// session has the Redis and the child processes in which one peer does one work.
type session struct {
	work
	closers
	*board
	servers sample.Servers
	crew    fleet.Fleet[result]
}

// compare makes each peer do the work. All calls of a peer's benchmark, with more and more operations, are in one
// session.
func compare(b *testing.B, peers []string, w work) {
	w.Processes, w.Lease = max(w.Processes, 1), longLease
	for _, w.Peer = range peers {
		w.Board = filepath.Join(b.TempDir(), "board")
		s := &session{work: w}
		b.Run("peer="+w.Peer, s.bench)
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}
}

func (s *session) bench(b *testing.B) {
	ctx, cancel := context.WithTimeoutCause(b.Context(), patience, errors.New("the callers get no further"))
	defer cancel()
	if s.board == nil {
		if err := s.open(); err != nil {
			b.Fatal(err)
		}
	}
	before, err := s.servers.Look(ctx)
	if err != nil {
		b.Fatal(err)
	}
	total, err := s.do(ctx, b, b.N)
	if err != nil {
		b.Fatal(err)
	}
	after, err := s.servers.Look(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if n := s.overlaps.Load(); n > 0 {
		b.Errorf("two held one lock at the same time, %d times", n)
	}
	s.report(b, &total, after.Since(before))
}

// open starts Redis and the children.
func (s *session) open() error {
	servers, addrs, stop, err := delay.Launch(s.Cluster, s.RTT)
	if err != nil {
		return err
	}
	s.add(stop)
	s.servers, s.Addrs = sample.Open(servers), addrs
	s.add(s.servers.Close)
	b, closeBoard, err := openBoard(s.Board)
	if err != nil {
		return err
	}
	s.board = b
	s.add(closeBoard)
	s.add(func() error { return s.crew.Close() })
	for s.Process = range s.Processes {
		err = errors.Join(err, s.crew.Start(nil, s.work))
	}
	return err
}

// do makes the callers do n operations, which b times, and returns what all of them have measured. Before it starts to
// measure, there are as many operations as callers, which also make the connections.
func (s *session) do(ctx context.Context, b *testing.B, n int) (total result, err error) {
	warm := int64(s.Processes * s.Callers)
	s.done.Store(0)
	s.start.Store(warm)
	s.goal.Store(warm + int64(n))
	if _, err := s.crew.Ask(ctx, fleet.Request{Do: begin}); err != nil {
		return total, err
	}
	s.await(ctx, &s.start)
	b.ResetTimer()
	b.StartTimer()
	s.await(ctx, &s.goal)
	b.StopTimer()
	results, err := s.crew.Ask(ctx, fleet.Request{Do: end})
	for _, r := range results {
		total.add(r)
	}
	return total, err
}

// await waits until that many operations have ended, or a child or ctx.
func (s *session) await(ctx context.Context, n *atomic.Int64) {
	gone := func() bool { return slices.ContainsFunc(s.crew, (*fleet.Member[result]).Ended) }
	for s.done.Load() < n.Load() && ctx.Err() == nil && !gone() {
		time.Sleep(poll)
	}
}

// report reports the figures of N operations.
func (s *session) report(b *testing.B, r *result, redis sample.Info) {
	all, seconds := float64(r.Operations), time.Duration(max(s.ended.Load()-s.started.Load(), 1)).Seconds()
	commands := float64(s.received(redis)) / all
	metrics := map[string]float64{
		"ns/op":        0, // not reported: the rates say the same
		"p50-ns":       quantile(r.Times, .5),
		"p99-ns":       quantile(r.Times, .99),
		"client-ns/op": float64(r.CPU) / all,
	}
	if redis.CPU > 0 { // of few operations, it may be less than what INFO is estimated to take
		metrics["redis-ns/op"] = float64(redis.CPU) / all
	}
	enough := b.N >= 2*len(r.Turns)
	if enough && len(r.Turns) > 1 {
		served := slices.DeleteFunc(slices.Clone(r.Turns), func(n int64) bool { return n == 0 })
		metrics["unserved"] = float64(len(r.Turns) - len(served))
	}
	if s.Kind == one {
		metrics["longest-ns"] = quantile(r.Times, 1)
		metrics["stuck"] = float64(r.Stuck)
		metrics["handoffs/s"] = float64(r.Handed) / seconds
		if len(r.Handoffs) > 0 {
			metrics["handoff-ns"] = quantile(r.Handoffs, .5)
		}
		if r.Handed > 0 {
			metrics["cmds/handoff"] = commands * float64(b.N) / float64(r.Handed)
		}
		if enough {
			turns := r.Turns
			if s.Processes > 1 {
				turns = r.PerProcess
			}
			metrics["fair"] = float64(slices.Max(turns)) / max(float64(slices.Min(turns)), .5) // 0 counts as a half
		}
	} else {
		metrics["ops/s"] = float64(b.N) / seconds
		metrics["cmds/op"] = commands
		b.ReportAllocs() // those of the children
		metrics["allocs/op"] = float64(r.Mallocs) / all
		metrics["B/op"] = float64(r.Bytes) / all
	}
	for unit, value := range metrics {
		b.ReportMetric(value, unit)
	}
}

// received returns the number of commands that came over the network. Only the peer's name says whether its SETs are
// called by a script.
func (s *session) received(redis sample.Info) int64 {
	var plain int64
	if slices.Contains([]string{rawFloor, rawGate, goRedsync}, strings.TrimSuffix(s.Peer, pooled)) {
		plain = redis.Commands["set"].Calls
	}
	return sample.Sort(redis.Commands, plain).Received
}

// quantile returns the duration in ns that a share q of them, of at least one, doesn't exceed.
func quantile(times []time.Duration, q float64) float64 {
	slices.Sort(times)
	return float64(times[int(q*float64(len(times)-1)+.5)])
}

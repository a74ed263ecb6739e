package dispatch

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

func TestRTTEstimate(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	var e rttEstimate
	for _, step := range []struct {
		what  string
		took  time.Duration
		alone bool
		want  time.Duration
	}{
		{"the first, in a crowd", 8 * ms, false, 8 * ms},
		{"a failure", 0, true, 8 * ms},
		{"a longer one in a crowd", 80 * ms, false, 8 * ms},
		{"a shorter one in a crowd", 4 * ms, false, 4 * ms},
		{"a longer one alone", 12 * ms, true, 5 * ms},
		{"another", 13 * ms, true, 6 * ms},
		{"a shorter one alone", 2 * ms, true, 2 * ms},
	} {
		if e.learn(step.took, step.alone); time.Duration(e) != step.want {
			t.Fatalf("after %s the estimate is %v, want %v", step.what, time.Duration(e), step.want)
		}
	}
}

func TestInFlightLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rtt    time.Duration
		pool   int
		stream bool
		limit  int
	}{
		{0, 1000, false, leastShared},
		{100 * time.Microsecond, 1000, false, leastShared},
		{300 * time.Microsecond, 1000, false, leastShared + 1},
		{2 * time.Millisecond, 1000, false, leastShared + 10},
		{2 * time.Millisecond, 20, false, 10},
		{2 * time.Millisecond, 1, false, leastShared},
		{time.Second, 1000, false, maxInFlight},
		{2 * time.Millisecond, 1, true, leastShared + 20},
		{time.Second, 1, true, maxInFlight},
	} {
		if n := rttEstimate(c.rtt).inFlightLimit(c.pool, c.stream); n != c.limit {
			t.Errorf("at %v with a pool of %d, stream %v: %d batches, want %d", c.rtt, c.pool, c.stream, n, c.limit)
		}
	}
}

// crowd has many callers make calls one after the other, until the time is over. It returns how many were made, by caller.
func (r *rig) crowd(callers int, d time.Duration) []int {
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	made := make([]int, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				c := r.d.NewCall(telemetry.PurposeAcquire)
				script.Acquire.Args(&c.Request, script.AcquireArgs{Lock: script.Lock{Key: fmt.Sprint("a:", i)}, Owner: "me", Lease: int64(60_000)})
				if _, err := r.d.Do(context.Background(), c, time.Minute); err != nil {
					r.t.Errorf("a call wasn't answered: %v", err)
					return
				}
				made[i]++
			}
		})
	}
	all.Wait()
	return made
}

// Far away no caller waits for long until its call is sent, and all callers are served alike. Nearby three batches are in flight; over a
// small pool half of its connections.
func TestDispatcher_Distance(t *testing.T) {
	for name, c := range map[string]struct {
		rtt        time.Duration
		pool       int
		stream     bool
		most       int // batches in flight
		callers    int
		roundTrips float64 // per call, at most: on average, and twice that of the caller with the fewest
	}{
		"nearby":             {rtt: 100 * time.Microsecond, pool: 1000, callers: 256, most: leastShared, roundTrips: 2.5},
		"2 ms":               {rtt: 2 * time.Millisecond, pool: 1000, callers: 256, most: leastShared + 10, roundTrips: 2},
		"2 ms, 20 conns":     {rtt: 2 * time.Millisecond, pool: 20, callers: 256, most: 10, roundTrips: 2},
		"10 ms, 2,048":       {rtt: 10 * time.Millisecond, pool: 1000, callers: 2048, most: leastShared + 50, roundTrips: 1.4},
		"10 ms, 2,048 on 20": {rtt: 10 * time.Millisecond, pool: 20, callers: 2048, most: 10, roundTrips: 4},
		"10 ms, 2,048, one connection for all": {
			rtt: 10 * time.Millisecond, pool: 20, stream: true, callers: 2048, most: maxInFlight, roundTrips: 1.4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.s.rtt, r.s.pool, r.s.stream = c.rtt, c.pool, c.stream
				r.want("a first call", r.acquire(t.Context(), "a:first", nil), nil) // the round-trip time is known then
				rounds := 8
				if full {
					rounds = 100
				}
				made := r.crowd(c.callers, time.Duration(rounds)*c.rtt)
				all := 0
				for i, n := range made {
					if all += n; float64(rounds)/float64(n) > 2*c.roundTrips {
						t.Errorf("caller %d made %d calls in %d round trips, want a call in %.1f", i, n, rounds, 2*c.roundTrips)
						break
					}
				}
				if perCall := float64(rounds*c.callers) / float64(all); perCall > c.roundTrips {
					t.Errorf("a call took %.2f round trips on average, want %.1f", perCall, c.roundTrips)
				}
				if (r.s.streamed > 0) != c.stream {
					t.Errorf("%d batches were for the stream", r.s.streamed)
				}
				if r.s.most > c.most {
					t.Errorf("%d batches were in flight, want %d at most", r.s.most, c.most)
				}
			})
		})
	}
}

// A stream is wanted once a call has to wait because the server is far away. How many batches a crowd makes would be up to the scheduler, so
// here each hangs with one call.
func TestDispatcher_WantsStream(t *testing.T) {
	for name, c := range map[string]struct {
		rtt  time.Duration
		room int // batches
		want bool
	}{
		"nearby": {rtt: 100 * time.Microsecond, room: leastShared},
		"far":    {rtt: 2 * time.Millisecond, room: 10, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.s.rtt, r.s.pool = c.rtt, 20
				r.want("a first call", r.acquire(t.Context(), "a:first", nil), nil)
				r.hang("a", c.room)
				if r.s.wanted > 0 {
					t.Errorf("a stream was wanted with room for all of %d batches", c.room)
				}
				r.hang("a", 1)
				if (r.s.wanted > 0) != c.want {
					t.Errorf("a stream was wanted %d times as batch %d had to wait", r.s.wanted, c.room+1)
				}
				close(r.s.answer)
			})
		})
	}
}

// How long replicas take to confirm a grant says nothing of the round-trip time.
func TestDispatcher_DistanceWithReplicas(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.s.rtt = time.Millisecond
		r.want("a call", r.acquire(t.Context(), "a:1", nil), nil)
		known := func() rttEstimate {
			synctest.Wait() // for the worker
			r.d.mu.Lock()
			defer r.d.mu.Unlock()
			return r.d.Node("a").rtt
		}
		want := known()
		r.want("one that waits for replicas", r.do(t.Context(), "a:2", nil, func(c *Call) {
			script.Acquire.Args(&c.Request, script.AcquireArgs{Lock: script.Lock{Key: "a:2"}, Owner: "me", Lease: int64(60_000)})
			c.Replicas, c.ReplicaTimeout = 1, time.Second
		}), nil)
		if got := known(); got != want || want == 0 {
			t.Errorf("the estimate is %v after %v", time.Duration(got), time.Duration(want))
		}
	})
}

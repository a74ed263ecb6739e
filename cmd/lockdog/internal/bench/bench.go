// Package bench measures what a lock costs on a Redis, with few commands: an operation begins only when all that were sent before are within the rate.
package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/probe"
	"github.com/lockdog/lockdog/lock"
)

// Options are what the user chose.
type Options struct {
	Duration time.Duration // of all phases together
	MaxQPS   int           // commands per second
	Sent     func() int64  // how many commands the client of the server has sent
	Name     string        // names of probe locks begin with it
}

// Phase is what was measured of one operation. Its fields are API: --json prints them.
type Phase struct {
	Phase    string `json:"phase"`
	N        int64  `json:"n"`
	P50      int64  `json:"p50_us"`
	P99      int64  `json:"p99_us"`
	Max      int64  `json:"max_us"`
	Commands int    `json:"commands"` // that one operation sends, as a rule
}

// The phases.
const (
	Ping     = "ping"      // the round trip
	Free     = "free_lock" // TryLock of a free lock, and its release
	Held     = "held_lock" // TryLock of a held lock
	HandOver = "hand_over" // from the call of Release to the return of Lock in another client
	longest  = 60_000_000  // µs, that a histogram has room for
	digits   = 3           // of its precision
	lease    = 10 * time.Second
	lookEach = time.Millisecond
	least    = 5 // operations of a phase, however long they take
)

// Result is what was measured.
type Result struct {
	Phases []Phase
	CPU    float64 // percent of a CPU that the server used meanwhile, for all its clients; negative: it doesn't say
}

// run is one run.
type run struct {
	server *connect.Server
	opts   Options
	pace   pace
	ping   time.Duration // median of the first phase

	holder, waiter *lock.Client
	name           string
}

// Run measures. It ends early, with what it has and the error, if an operation fails or ctx ends.
func Run(ctx context.Context, server *connect.Server, opts Options) (result Result, err error) {
	r := &run{server: server, opts: opts, pace: pace{each: time.Second / time.Duration(opts.MaxQPS), sent: opts.Sent, charged: opts.Sent()}, name: probe.Name(server.Prefix, opts.Name, "lockdog-bench")}
	for _, c := range []**lock.Client{&r.holder, &r.waiter} {
		if *c, err = lock.New(server.UniversalClient, lock.WithKeyPrefix(server.Prefix), lock.WithClientID("lockdog-bench"), lock.WithWatchdog(lease),
			lock.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, r.close(ctx, *c)) }()
	}
	defer r.cleanUp(ctx)
	result.CPU = -1
	before, began := r.cpu(ctx), time.Now()
	phases := []struct {
		name    string
		measure func(ctx context.Context, over time.Time, sample func(time.Duration)) error
	}{
		{Ping, r.pings},
		{Free, r.free},
		{Held, r.held},
		{HandOver, r.handOver},
	}
	for _, p := range phases {
		h := hdrhistogram.New(1, longest, digits)
		r.pace.operations, r.pace.commands = 0, 0
		err := p.measure(ctx, time.Now().Add(opts.Duration/time.Duration(len(phases))), func(d time.Duration) {
			_ = h.RecordValue(min(max(d.Microseconds(), 1), longest)) // within its bounds
		})
		if h.TotalCount() > 0 {
			result.Phases = append(result.Phases, Phase{p.name, h.TotalCount(), h.ValueAtQuantile(50), h.ValueAtQuantile(99), h.Max(), r.pace.perOperation()})
		}
		if err != nil {
			return result, fmt.Errorf("%s: %w", p.name, err)
		}
		if p.name == Ping {
			r.ping = time.Duration(h.ValueAtQuantile(50)) * time.Microsecond
		}
	}
	if after := r.cpu(ctx); before >= 0 && after >= before {
		result.CPU = 100 * (after - before).Seconds() / time.Since(began).Seconds()
	}
	return result, nil
}

// pace spaces operations: one begins when all commands that were sent before are within the rate, its own and those that locks send beside it.
type pace struct {
	each    time.Duration // between two commands
	next    time.Time     // when the operation before began
	sent    func() int64
	charged int64 // how many of these have had their time

	operations, commands int64 // of this phase, without what connects and loads scripts
}

// firsts are the operations of a phase which send more than later ones: each client's connections, scripts and subscriptions.
const firsts = 2

// wait waits until an operation may begin. It reports false once it is over and enough was done, or ctx has ended.
func (p *pace) wait(ctx context.Context, over time.Time, done int) bool {
	sent := p.sent()
	n := sent - p.charged
	p.charged = sent
	if done > firsts {
		p.operations++
		p.commands += n
	}
	if p.next = p.next.Add(time.Duration(n) * p.each); p.next.Before(time.Now()) {
		p.next = time.Now()
	}
	if !p.next.Before(over) && done >= least {
		return false
	}
	timer := time.NewTimer(time.Until(p.next))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// perOperation is how many commands an operation of this phase sends.
func (p *pace) perOperation() int {
	return int(math.Round(float64(p.commands) / float64(max(p.operations, 1))))
}

func (r *run) pings(ctx context.Context, over time.Time, sample func(time.Duration)) error {
	for n := 0; r.pace.wait(ctx, over, n); n++ {
		began := time.Now()
		if err := r.server.Ping(ctx).Err(); err != nil {
			return err
		}
		if n > 0 { // which may have had to connect
			sample(time.Since(began))
		}
	}
	return context.Cause(ctx)
}

func (r *run) free(ctx context.Context, over time.Time, sample func(time.Duration)) error {
	m := r.holder.Mutex(r.name)
	for n := 0; r.pace.wait(ctx, over, n); n++ {
		began := time.Now()
		l, err := m.TryLock(ctx)
		if err != nil {
			return err
		}
		if err := l.Release(ctx); err != nil {
			return err
		}
		if n > 0 { // for which Redis may have had to load the scripts
			sample(time.Since(began))
		}
	}
	return context.Cause(ctx)
}

func (r *run) held(ctx context.Context, over time.Time, sample func(time.Duration)) (err error) {
	l, err := r.holder.Mutex(r.name).TryLock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Release(ctx)) }()
	m := r.waiter.Mutex(r.name)
	for n := 0; r.pace.wait(ctx, over, n); n++ {
		began := time.Now()
		if _, err := m.TryLock(ctx); !errors.Is(err, lock.ErrHeld) {
			return err
		}
		if n > 0 {
			sample(time.Since(began))
		}
	}
	return context.Cause(ctx)
}

// grant is what a waiter got, and when.
type grant struct {
	lease *lock.Lease
	err   error
	at    time.Time
}

// handOver passes the lock from one client to the other and back.
func (r *run) handOver(ctx context.Context, over time.Time, sample func(time.Duration)) error {
	holder, waiter := r.holder, r.waiter
	l, err := holder.Mutex(r.name).TryLock(ctx)
	if err != nil {
		return err
	}
	for turn := 0; r.pace.wait(ctx, over, turn); turn++ {
		got := make(chan grant, 1)
		waiting, giveUp := context.WithCancel(ctx)
		go func() {
			lease, err := waiter.Mutex(r.name, lock.WithLeaseContext(context.WithoutCancel(ctx))).Lock(waiting)
			got <- grant{lease, err, time.Now()}
		}()
		r.awaitWaiter(ctx, waiter)
		began := time.Now()
		err := l.Release(ctx)
		if err != nil {
			giveUp()
		}
		g := <-got
		giveUp()
		if err := errors.Join(err, g.err); err != nil {
			if g.lease != nil {
				err = errors.Join(err, g.lease.Release(ctx))
			}
			return err
		}
		if turn > 1 { // the first of each client subscribe
			sample(g.at.Sub(began))
		}
		l = g.lease
		holder, waiter = waiter, holder
	}
	return errors.Join(context.Cause(ctx), l.Release(ctx))
}

// awaitWaiter waits until a client's waiter has been told that the lock is held, as far as can be seen from here.
func (r *run) awaitWaiter(ctx context.Context, c *lock.Client) {
	tick := time.NewTicker(lookEach)
	defer tick.Stop()
	var seen time.Time
	for ctx.Err() == nil {
		if seen.IsZero() {
			for _, l := range c.Leases() {
				if l.State == lock.StateWaiting {
					seen = time.Now()
				}
			}
		} else if time.Since(seen) > 3*r.ping+10*lookEach {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (r *run) close(ctx context.Context, c *lock.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	return c.Close(ctx)
}

// cleanUp deletes what a wait leaves. The lock itself is released.
func (r *run) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	_ = r.server.Del(ctx, "lockdog_wait:{"+r.server.Prefix+r.name+"}").Err() // it has a TTL, too
}

// cpu is what the server has used since its start, negative if it doesn't say or there are several.
func (r *run) cpu(ctx context.Context) time.Duration {
	if _, ok := r.server.UniversalClient.(*redis.ClusterClient); ok {
		return -1
	}
	text, err := r.server.Info(ctx, "cpu").Result()
	if err != nil {
		return -1
	}
	sum, found := 0.0, false
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			if seconds, err := strconv.ParseFloat(value, 64); err == nil {
				sum, found = sum+seconds, true
			}
		}
	}
	if !found {
		return -1
	}
	return time.Duration(sum * float64(time.Second))
}

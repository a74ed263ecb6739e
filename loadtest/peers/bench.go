package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/loadtest/internal/delay"
	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
	"github.com/lockdog/lockdog/loadtest/peers/internal/pin"
	"github.com/lockdog/lockdog/loadtest/peers/internal/witness"
	"github.com/lockdog/lockdog/loadtest/peers/internal/work"
)

// bench is one run: all works and peers in all rounds.
type bench struct {
	flags
	progress io.Writer
	rounds   map[string]map[string]figures.Rounds // by work and peer
	about    string                               // the machine
	began    time.Time
}

const (
	// The warm-up takes 1/warmShare of a window, within these bounds.
	warmShare = 4
	leastWarm = 50 * time.Millisecond
	mostWarm  = 500 * time.Millisecond

	// cellSlack is the time that a measurement may need in addition to its windows: to start and end processes, and to
	// form a cluster.
	cellSlack = time.Minute
)

func newBench(f flags, progress io.Writer) *bench {
	return &bench{
		flags: f, progress: progress, rounds: make(map[string]map[string]figures.Rounds),
		about: machine(), began: time.Now(),
	}
}

// all measures everything.
func (b *bench) all(ctx context.Context) error {
	for round := range b.flags.rounds {
		for i := range b.works {
			w := &b.works[i]
			for k := range w.peers {
				name := w.peers[(k+round)%len(w.peers)] // each round begins with the next peer
				_, _ = fmt.Fprintf(b.progress, "round %d of %d: %s, %s\n", round+1, b.flags.rounds, w.name, name)
				f, err := b.cell(ctx, w, name)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, name, err)
				}
				if b.rounds[w.name] == nil {
					b.rounds[w.name] = make(map[string]figures.Rounds)
				}
				b.rounds[w.name][name] = append(b.rounds[w.name][name], f)
			}
		}
	}
	return nil
}

// sound returns an error if the figures are worthless because a lock had two holders.
func (b *bench) sound() error {
	var errs []error
	for _, w := range b.works {
		for _, name := range w.peers {
			if n, _ := b.rounds[w.name][name].Get(figures.Overlaps); n > 0 {
				errs = append(errs, fmt.Errorf("%s, %s: two held one lock, %.0f times in a round", w.name, name, n))
			}
		}
	}
	return errors.Join(errs...)
}

// cell measures one peer at one work once, with its own Redis.
func (b *bench) cell(ctx context.Context, w *workload, name string) (f figures.Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*b.window+cellSlack)
	defer cancel()
	if w.oneCPU {
		undo, err := pin.One() // the children and their Redis inherit it
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, undo()) }()
	}
	servers, addrs, stop, err := delay.Launch(w.cluster, w.rtt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	cfg := work.Config{
		Config: peer.Config{Addrs: addrs, Cluster: w.cluster, Lease: cmp.Or(w.lease, lease), Callers: w.goroutines},
		Kind:   w.kind, Peer: name, Pause: w.pause,
		Warm: min(max(b.window/warmShare, leastWarm), mostWarm), Window: b.window,
	}
	if w.kind == work.Shared {
		if cfg.Witness, err = witness.Create(""); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.Remove(cfg.Witness)) }()
	}
	var took time.Duration
	if w.rtt > 0 {
		if took, err = roundTrip(ctx, addrs[0]); err != nil {
			return nil, err
		}
	}
	if f, err = measure(ctx, w, cfg, servers); err == nil && w.rtt > 0 {
		f[figures.RoundTrip] = micros(took)
	}
	return f, err
}

// pings is the number of PINGs that measure the round trip.
const pings = 11

// roundTrip returns the median duration of a PING, without other traffic.
func roundTrip(ctx context.Context, addr string) (_ time.Duration, err error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	var took []time.Duration
	for range pings + 1 { // the first one connects
		began := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	took = took[1:]
	slices.Sort(took)
	return took[pings/2], nil
}

// measure makes the processes measure at the same time. INFO is read from addrs.
func measure(ctx context.Context, w *workload, cfg work.Config, addrs []string) (_ figures.Figures, err error) {
	var crew fleet.Fleet[work.Result]
	defer func() { err = errors.Join(err, crew.Close()) }()
	for i := range w.processes {
		cfg.Process = i
		if err := crew.Start(nil, cfg); err != nil {
			return nil, err
		}
	}
	if _, err := crew.Ask(ctx, fleet.Request{Do: work.Warm}); err != nil {
		return nil, err
	}
	servers := sample.Open(addrs)
	defer func() { err = errors.Join(err, servers.Close()) }()
	before, err := servers.Look(ctx)
	if err != nil {
		return nil, err
	}
	results, err := crew.Ask(ctx, fleet.Request{Do: work.Go})
	if err != nil {
		return nil, err
	}
	after, err := servers.Look(ctx)
	if err != nil {
		return nil, err
	}
	return figuresOf(w, cfg.Peer, results, after.Since(before)), nil
}

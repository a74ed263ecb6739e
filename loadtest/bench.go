package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/delay"
	"github.com/lockdog/lockdog/loadtest/internal/load"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
)

// bench has what all measurements share: a Redis, the sampler that watches it, and the foreground traffic.
type bench struct {
	flags
	progress io.Writer
	began    time.Time
	servers  []string       // addresses of the nodes
	addrs    []string       // addresses for the holders: with -rtt the proxy's
	closers  []func() error // for what openBench opened, in order
	sampler  *sample.Sampler
	traffic  *load.Foreground // nil: none
	redisson []string         // command that runs the Redisson client
	socket   string           // for the agent
}

// openBench starts Redis and the sampler. It builds the Redisson client if the flags ask for that.
func openBench(ctx context.Context, f flags, progress io.Writer) (_ *bench, err error) {
	b := &bench{flags: f, progress: progress, began: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if slices.Contains(f.modes, load.Redisson) {
		if b.redisson, err = b.buildRedisson(ctx); err != nil {
			return nil, err
		}
	}
	var stop func() error
	dir, err := os.MkdirTemp("", "loadtest")
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, func() error { return os.RemoveAll(dir) })
	b.socket = filepath.Join(dir, "agent.sock")
	if b.servers, b.addrs, stop, err = delay.Launch(f.cluster, f.rtt); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, stop)
	// The sampler continues after an interrupt, because the end of the last measurement is read then.
	if b.sampler, err = sample.New(context.WithoutCancel(ctx), b.servers); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, b.sampler.Close)
	return b, nil
}

// close stops and closes everything.
func (b *bench) close() error {
	err := b.setTraffic(context.Background(), false)
	for _, f := range slices.Backward(b.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// say prints a line of progress.
func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "%5.0fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// setTraffic starts or stops the foreground traffic, if the flags ask for any.
func (b *bench) setTraffic(ctx context.Context, on bool) (err error) {
	switch {
	case !on && b.traffic != nil:
		err, b.traffic = b.traffic.Close(), nil
	case on && b.traffic == nil && b.foreground > 0:
		// The traffic bypasses -rtt's proxy: it shows how Redis treats other clients, and the distance would hide that.
		b.traffic, err = load.StartForeground(ctx, b.servers, b.cluster, b.foreground)
	}
	return err
}

// compare measures all modes and numbers of locks in interleaved rounds, so that changes on the machine affect all of
// them.
func (b *bench) compare(ctx context.Context, rep *report) error {
	for round := range b.rounds {
		// Every second round has no foreground traffic: the CPU time that the traffic costs Redis varies by more than
		// the renewals cost.
		if err := b.setTraffic(ctx, round%2 == 0); err != nil {
			return err
		}
		for _, locks := range b.locks {
			var idle *window
			for _, mode := range b.modes {
				b.say("round %d of %d: %d locks, %s", round+1, b.rounds, locks, mode)
				h, err := b.measure(ctx, mode, locks)
				if h == nil {
					return err
				}
				if mode == load.None {
					idle = h.window
				}
				rep.add(h, idle)
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

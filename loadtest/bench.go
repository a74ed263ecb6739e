package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/loadtest/internal/child"
	"github.com/lockdog/lockdog/loadtest/internal/delay"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
)

// bench has what all measurements share: a Redis, the sampler that watches it, and the foreground traffic.
type bench struct {
	flags
	progress io.Writer
	began    time.Time
	servers  []string       // addresses of the nodes
	addrs    []string       // addresses for the holders: with -rtt the proxy's
	closers  []func() error // for everything opened, in order
	sampler  *sample.Sampler
	traffic  fleet.Fleet[child.Reading] // foreground; nil: none
	redisson []string                   // command that runs the Redisson client
	version  string                     // of Redis
}

// openBench starts Redis and what the flags need.
func openBench(ctx context.Context, f flags, progress io.Writer) (_ *bench, err error) {
	b := &bench{flags: f, progress: progress, began: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if slices.Contains(f.modes, child.Redisson) {
		if b.redisson, err = b.buildRedisson(ctx); err != nil {
			return nil, err
		}
	}
	var stop func() error
	if b.servers, stop, err = redistest.Launch(f.cluster); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, stop)
	b.addrs = b.servers
	if f.rtt > 0 {
		proxy, err := delay.Start(b.servers[0], f.rtt)
		if err != nil {
			return nil, err
		}
		b.closers = append(b.closers, proxy.Close)
		b.addrs = []string{proxy.Addr()}
	}
	// The sampler continues after an interrupt, because the end of the last measurement is read then.
	if b.sampler, err = sample.New(context.WithoutCancel(ctx), b.servers); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, b.sampler.Close)
	info, err := b.sampler.Look(ctx)
	b.version = info.Version
	return b, err
}

// close stops and closes everything.
func (b *bench) close() error {
	err := b.traffic.Close()
	for _, f := range slices.Backward(b.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// say prints a line of progress.
func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "%5.0fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// setTraffic starts or stops the foreground traffic, if the flags ask for any.
func (b *bench) setTraffic(ctx context.Context, on bool) (err error) {
	if !on {
		err, b.traffic = b.traffic.Close(), nil
		return err
	}
	if b.traffic != nil || b.foreground == 0 {
		return nil
	}
	// Without -rtt's proxy: it measures how Redis treats other clients, and the distance would hide that.
	err = b.traffic.Start(nil, child.Config{
		Role: child.Foreground, Addrs: b.servers, Cluster: b.cluster, Rate: b.foreground,
	})
	for _, do := range []string{child.Warm, child.Acquire} {
		if err == nil {
			_, err = b.traffic.Ask(ctx, fleet.Request{Do: do})
		}
	}
	return err
}

// configs returns the configurations of a mode's clients, which share the locks.
func (b *bench) configs(mode string, locks int, hold time.Duration) []child.Config {
	var configs []child.Config
	for i := range b.clients {
		first, next := locks*i/b.clients, locks*(i+1)/b.clients
		configs = append(configs, child.Config{
			Role: mode, Addrs: b.addrs, Cluster: b.cluster, RTT: b.rtt.Seconds(), First: first, Locks: next - first,
			Lease: b.lease.Seconds(), Hold: hold.Seconds(), Churn: b.churn / float64(b.clients),
		})
	}
	return configs
}

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

// bench is what all measurements share: a Redis, the sampler that watches it, and the foreground traffic.
type bench struct {
	flags
	progress io.Writer
	began    time.Time
	servers  []string       // addresses of the nodes
	addrs    []string       // ... for the holders: with -rtt the proxy's
	closers  []func() error // what was opened, in order
	sampler  *sample.Sampler
	traffic  fleet.Fleet[child.Reading] // of the foreground; nil without
	redisson []string                   // the command of its client
	version  string                     // of Redis
}

// openBench starts what is needed.
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
	// It outlives an interrupt: the end of the last measurement is read after it.
	if b.sampler, err = sample.New(context.WithoutCancel(ctx), b.servers); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, b.sampler.Close)
	info, err := b.sampler.Look(ctx)
	b.version = info.Version
	return b, err
}

// close ends everything.
func (b *bench) close() error {
	err := b.traffic.Close()
	for _, f := range slices.Backward(b.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// say tells what comes next.
func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "%5.0fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// wait lets time pass.
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

// setTraffic starts or stops the foreground traffic, where there is to be one.
func (b *bench) setTraffic(ctx context.Context, on bool) (err error) {
	if !on {
		err, b.traffic = b.traffic.Close(), nil
		return err
	}
	if b.traffic != nil || b.foreground == 0 {
		return nil
	}
	// It tells what Redis does to others, which a distance would hide.
	err = b.traffic.Start(nil, child.Config{Role: child.Foreground, Addrs: b.servers, Cluster: b.cluster, Rate: b.foreground})
	for _, do := range []string{child.Warm, child.Acquire} {
		if err == nil {
			_, err = b.traffic.Ask(ctx, fleet.Request{Do: do})
		}
	}
	return err
}

// configs are those of the clients of a mode, which share the locks.
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

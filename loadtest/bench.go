package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/loadtest/internal/delay"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// bench is what all measurements share: a Redis, the sampler that watches it, and the foreground traffic.
type bench struct {
	flags
	out        *progress
	stop       func() error // the servers; nil with -redis
	servers    []string     // addresses of the nodes
	addrs      []string     // ... for the holders: with -rtt the proxy's
	proxy      *delay.Proxy // nil without -rtt
	sampler    *sample.Sampler
	foreground fleet.Fleet[wire.Reply] // nil without
	redisson   []string                // the command of its client
	version    string                  // of Redis
}

// openBench starts what is needed.
func openBench(ctx context.Context, f flags, out *progress) (_ *bench, err error) {
	b := &bench{flags: f, out: out, servers: []string{f.redis}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if f.has(wire.Redisson) {
		if b.redisson, err = buildRedisson(ctx, out); err != nil {
			return nil, err
		}
	}
	if f.redis == "" {
		if b.servers, b.stop, err = redistest.Launch(f.cluster); err != nil {
			return nil, err
		}
	}
	b.addrs = b.servers
	if f.rtt > 0 {
		if b.proxy, err = delay.Start(b.servers[0], f.rtt); err != nil {
			return nil, err
		}
		b.addrs = []string{b.proxy.Addr()}
	}
	return b, b.watch(ctx)
}

// watch begins to sample.
func (b *bench) watch(ctx context.Context) error {
	var servers []*redis.Options
	for _, addr := range b.servers {
		o, err := wire.Options(addr)
		if err != nil {
			return err
		}
		servers = append(servers, o)
	}
	// It outlives an interrupt: the end of the last measurement is read after it.
	var err error
	if b.sampler, err = sample.New(context.WithoutCancel(ctx), servers); err != nil {
		return fmt.Errorf("no Redis to measure: %w", err)
	}
	info, err := b.sampler.Look(ctx)
	if err != nil {
		return err
	}
	if info.Cluster && b.stop == nil {
		return fmt.Errorf("-redis %s is a node of a cluster, of which the others would not be measured; use -cluster", b.redis)
	}
	b.version = info.Version
	return nil
}

// traffic starts or stops the foreground traffic, where there is to be one.
func (b *bench) traffic(ctx context.Context, on bool) (err error) {
	if b.foreground != nil && !on {
		err, b.foreground = b.foreground.Close(), nil
		return err
	}
	if b.foreground != nil || !on || b.flags.foreground == 0 {
		return nil
	}
	err = b.foreground.Start(nil, wire.Config{ // it tells what Redis does to others, which a distance would hide
		Role: wire.Foreground, Addrs: b.servers, Cluster: b.cluster, Seed: b.seed, Rate: b.flags.foreground,
	})
	if err != nil {
		return err
	}
	for _, do := range []string{wire.DoWarm, wire.DoAcquire} {
		if _, err := b.foreground.Ask(ctx, wire.Request{Do: do}); err != nil {
			return fmt.Errorf("foreground: %w", err)
		}
	}
	return nil
}

// close ends everything.
func (b *bench) close() error {
	var errs []error
	errs = append(errs, b.foreground.Close())
	if b.sampler != nil {
		errs = append(errs, b.sampler.Close())
	}
	if b.proxy != nil {
		errs = append(errs, b.proxy.Close())
	}
	if b.stop != nil {
		errs = append(errs, b.stop())
	}
	return errors.Join(errs...)
}

// configs are those of the clients of a mode, which share the locks.
func (b *bench) configs(mode string, locks int, hold time.Duration) []wire.Config {
	var configs []wire.Config
	for i := range b.clients {
		first, next := locks*i/b.clients, locks*(i+1)/b.clients
		configs = append(configs, wire.Config{
			Role: mode, Addrs: b.addrs, Cluster: b.cluster, RTT: b.rtt.Seconds(), Seed: b.seed, First: first, Locks: next - first,
			Lease: b.lease.Seconds(), Hold: hold.Seconds(), Churn: b.churn / float64(b.clients),
		})
	}
	return configs
}

// has reports whether a mode is to be measured.
func (f *flags) has(mode string) bool { return slices.Contains(f.modes, mode) }

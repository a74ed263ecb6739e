package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

const (
	drainTimeout = 5 * time.Second  // for running requests when the service stops
	closeTimeout = 10 * time.Second // for everything: requests, locks, the last spans
)

// service has everything that runs.
type service struct {
	flags     flags
	telemetry *otelsetup.Providers
	log       *slog.Logger
	rdb       *redis.Client
	locks     *lock.Client
	listener  net.Listener
	closers   []func(context.Context) error
}

// start sets everything up. It doesn't check that Redis answers: a service that was started during an outage must work
// after the outage.
func start(ctx context.Context, f flags, logs io.Writer) (_ *service, err error) {
	s := &service{flags: f}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	// Telemetry first: everything else gets its tracers and meters from the global providers.
	s.telemetry, err = otelsetup.Start(ctx, otelsetup.Config{ServiceName: f.service, Endpoint: f.otlp, LogOutput: logs})
	if err != nil {
		return nil, err
	}
	s.onClose(s.telemetry.Shutdown)
	s.log = s.telemetry.Logger
	redis.SetLogger(redisLog{s.log})

	if s.rdb, err = s.connect(*f.redis); err != nil {
		return nil, err
	}
	// Without WithRenewalClient, lockdog makes such a client itself. This one adds the chaos, and spans below each
	// "renew batch".
	forRenewals := *f.redis
	forRenewals.PoolSize = 8
	forRenewals.MaxRetries = -1 // lockdog retries, and its spans show that
	forRenewals.ContextTimeoutEnabled = true
	renewals, err := s.connect(forRenewals)
	if err != nil {
		return nil, err
	}
	if f.chaos > 0 {
		renewals.AddHook(newChaos(f.chaos, newRand(f.seed, streamChaos)))
		s.log.WarnContext(ctx, "renewals are made to fail", "share", f.chaos)
	}
	opts := []lock.Option{
		lock.WithKeyPrefix(f.service + ":locks:"), // the orders are in the same Redis
		lock.WithLease(f.lease),
		lock.WithHoldWarning(10 * f.hold),
		lock.WithRenewalClient(renewals),
		lock.WithLogger(s.log),
	}
	if f.agent != "" {
		opts = append(opts, lock.WithAgent(f.agent))
	}
	s.locks, err = lock.New(s.rdb, opts...)
	if err != nil {
		return nil, fmt.Errorf("-lease %v, -service %q: %w", f.lease, f.service, err)
	}
	s.onClose(s.locks.Close)
	if s.listener, err = net.Listen("tcp", f.addr); err != nil {
		return nil, fmt.Errorf("-addr %s: %w", f.addr, err)
	}
	return s, nil
}

// connect returns a client that makes a span for each command.
func (s *service) connect(o redis.Options) (*redis.Client, error) {
	rdb := redis.NewClient(&o)
	s.onClose(func(context.Context) error { return rdb.Close() })
	err := redisotel.InstrumentTracing(rdb,
		// Statements would contain all arguments of commands, including owners and traceparents of locks.
		redisotel.WithDBStatement(false),
		redisotel.WithDialFilter(true), // connections are opened in the background: each would be a trace
	)
	return rdb, err
}

// run serves until ctx ends or the server fails, and then closes everything.
func (s *service) run(ctx context.Context) error {
	url := "http://" + s.listener.Addr().String()
	server := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second}
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(s.listener) }()
	s.log.InfoContext(ctx, "serving", "url", url, "redis", s.rdb.Options().Addr, "lease", s.flags.lease)

	background, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for n := range s.flags.workers {
		wg.Go(func() { (&worker{locks: s.locks, log: s.log, hold: s.flags.hold}).run(background, n+1) })
	}
	if s.flags.rate > 0 {
		wg.Go(func() { newLoad(s.flags, url).run(background) })
	}

	var err error
	select {
	case <-ctx.Done():
		s.log.InfoContext(ctx, "stopping")
	case err = <-serving: // the server has failed
	}
	stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err = errors.Join(err, drain(ctx, server))
	wg.Wait()
	return errors.Join(err, s.close(ctx))
}

// drain lets requests finish until drainTimeout. Then their ctx ends, so they release their locks.
func drain(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests were cut off: %w", err), server.Close())
	}
	return nil
}

func (s *service) onClose(f func(context.Context) error) { s.closers = append(s.closers, f) }

// close closes everything in reverse order: the locks before the Redis clients that they use, and last the telemetry,
// to which the others still add spans.
func (s *service) close(ctx context.Context) error {
	var errs []error
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// redisLog writes go-redis's messages about connections to our log, at level debug: lockdog's errors have the same
// information.
type redisLog struct{ log *slog.Logger }

// Printf implements go-redis's logger.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "go-redis", "message", fmt.Sprintf(format, args...))
}

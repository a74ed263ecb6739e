package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

const (
	// drainTimeout is what requests get to finish once the service is told to stop. Then they are cut off.
	drainTimeout = 5 * time.Second
	// closeTimeout is how long all of the end takes at most: requests, locks, the last spans.
	closeTimeout = 10 * time.Second
)

// service is everything that runs.
type service struct {
	flags     flags
	telemetry *otelsetup.Providers
	log       *slog.Logger
	rdb       *redis.Client
	renewals  *redis.Client
	locks     *lock.Client
	listener  net.Listener
}

// start sets everything up. It doesn't ask whether Redis answers: a service that starts while Redis is away should be there when Redis
// is back.
func start(ctx context.Context, f flags, logs io.Writer) (_ *service, err error) {
	s := &service{flags: f}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	// First of all, as what follows takes its tracers and meters from the global providers.
	s.telemetry, err = otelsetup.Start(ctx, otelsetup.Config{ServiceName: f.service, Endpoint: f.otlp, LogOutput: logs})
	if err != nil {
		return nil, err
	}
	s.log = s.telemetry.Logger
	redis.SetLogger(redisLog{s.log})

	if s.rdb, err = newRedis(*f.redisOptions); err != nil {
		return nil, err
	}
	if s.renewals, err = newRenewals(*f.redisOptions); err != nil {
		return nil, err
	}
	if f.chaos > 0 {
		s.renewals.AddHook(newChaos(f.chaos, newRand(f.seed, streamChaos)))
		s.log.WarnContext(ctx, "renewals are made to fail", "share", f.chaos)
	}
	s.locks, err = lock.New(s.rdb,
		lock.WithKeyPrefix(f.service+":locks:"), // beside the orders, in the same Redis
		lock.WithWatchdog(f.lease),
		lock.WithHoldWarning(10*f.hold),
		lock.WithRenewalClient(s.renewals),
		lock.WithLogger(s.log),
	)
	if err != nil {
		return nil, fmt.Errorf("-lease %v, -service %q: %w", f.lease, f.service, err)
	}
	if s.listener, err = net.Listen("tcp", f.addr); err != nil {
		return nil, fmt.Errorf("-addr %s: %w", f.addr, err)
	}
	return s, nil
}

// newRedis makes a client whose commands are spans.
func newRedis(o redis.Options) (*redis.Client, error) {
	rdb := redis.NewClient(&o)
	err := redisotel.InstrumentTracing(rdb,
		redisotel.WithDBStatement(false), // else every argument of every command ends up on a span, owners and traces of locks included
		redisotel.WithDialFilter(true),   // connections are opened in the background: each would be a trace of its own
	)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return rdb, nil
}

// newRenewals makes the client that renews. lockdog makes one itself if it is given none; this one has spans too, below
// each "renew batch", and takes the chaos.
func newRenewals(o redis.Options) (*redis.Client, error) {
	o.PoolSize = 8
	o.MaxRetries = -1 // lockdog tries again itself, and shows it
	o.ContextTimeoutEnabled = true
	return newRedis(o)
}

// run serves until ctx ends, and then closes.
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
		wg.Go(func() { newLoad(s.flags, url, s.log).run(background) })
	}

	var err error
	select {
	case <-ctx.Done():
		s.log.InfoContext(ctx, "stopping")
	case err = <-serving: // it never returns by itself unless it failed
	}
	stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err = errors.Join(err, drain(ctx, server))
	wg.Wait()
	return errors.Join(err, s.close(ctx))
}

// drain lets requests finish, for a while. The ctx of those cut off ends, so that they let go of their locks.
func drain(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests were cut off: %w", err), server.Close())
	}
	return nil
}

// close ends what start began, in this order: a lock client still needs Redis, and its last spans are yet to be sent.
func (s *service) close(ctx context.Context) error {
	var errs []error
	if s.listener != nil {
		if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) { // the HTTP server closes it, too
			errs = append(errs, err)
		}
	}
	if s.locks != nil {
		errs = append(errs, s.locks.Close(ctx))
	}
	for _, rdb := range []*redis.Client{s.renewals, s.rdb} {
		if rdb != nil {
			errs = append(errs, rdb.Close())
		}
	}
	if s.telemetry != nil {
		errs = append(errs, s.telemetry.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// redisLog sends go-redis's own messages where ours go. They are about connections, and lockdog's errors tell the same.
type redisLog struct{ log *slog.Logger }

// Printf implements go-redis's logger.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "go-redis", "message", fmt.Sprintf(format, args...))
}

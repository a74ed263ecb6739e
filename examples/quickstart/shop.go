package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

const (
	lockName  = "order:42"
	leaseTime = 3 * time.Second // the default is 30 s, which is more patience than a quickstart gets
	keyPrefix = "quickstart:"
)

// shop is two services that share a Redis.
type shop struct {
	orders, billing *service
	shared          *otelsetup.Providers // metrics and logs of both
	otlp            string
	seen            *record // the spans of both
}

// service is what a program of yours would be: it has tracing, a Redis client and a lock client.
type service struct {
	name   string
	redis  *redis.Client
	traces *otelsetup.Providers
	tracer trace.Tracer
	locks  *lock.Client
}

// openShop starts both services. In one process, so that you see both; each has a lock client and a tracer of its own,
// as two processes would.
func openShop(ctx context.Context, f flags, r server, out *printer) (*shop, error) {
	shared, err := otelsetup.Start(ctx, otelsetup.Config{
		ServiceName: "quickstart", KeepGlobals: true, LogOutput: out, NoColor: !out.colour,
		LogLevel: slog.LevelError, // renewal failures are warnings, and shown as spans here
	})
	if err != nil {
		return nil, err
	}
	s := &shop{shared: shared, otlp: f.otlp, seen: newRecord()}
	for name, at := range map[string]**service{"orders": &s.orders, "billing": &s.billing} {
		one := &service{name: name, redis: r.client()}
		*at = one
		one.traces, err = otelsetup.Start(ctx, otelsetup.Config{
			ServiceName: name, KeepGlobals: true, LogOutput: out, NoColor: !out.colour, Endpoint: f.otlp,
			SpanProcessors: []sdktrace.SpanProcessor{&teller{service: name, out: out, seen: s.seen}},
		})
		if err == nil {
			one.tracer = one.traces.TracerProvider.Tracer("quickstart")
			one.locks, err = lock.New(one.redis,
				lock.WithClientID(name),
				lock.WithKeyPrefix(keyPrefix),
				lock.WithWatchdog(leaseTime),
				lock.WithTracerProvider(one.traces.TracerProvider),
				lock.WithMeterProvider(shared.MeterProvider),
				lock.WithLogger(shared.Logger))
		}
		if err != nil {
			return nil, errors.Join(err, s.close(ctx))
		}
	}
	return s, nil
}

// close ends everything in order: locks first, so that their last spans are still sent.
func (s *shop) close(ctx context.Context) error {
	var errs []error
	for _, one := range []*service{s.orders, s.billing} {
		if one == nil {
			continue
		}
		if one.locks != nil {
			errs = append(errs, one.locks.Close(ctx))
		}
		errs = append(errs, one.redis.Close())
		if one.traces != nil {
			if err := one.traces.Shutdown(ctx); err != nil {
				errs = append(errs, fmt.Errorf("the traces of %s were not sent to %s: %w", one.name, s.otlp, err))
			}
		}
	}
	return errors.Join(append(errs, s.shared.Shutdown(ctx))...)
}

// request begins what a lock is taken for: in a program the span of an HTTP request or a job.
func (s *service) request(ctx context.Context, what string) (context.Context, trace.Span, error) {
	ctx, span := s.tracer.Start(ctx, what)
	if !span.IsRecording() {
		return ctx, span, errors.New("nothing to see: tracing is off; unset OTEL_SDK_DISABLED and OTEL_TRACES_SAMPLER")
	}
	return ctx, span, nil
}

// waiting says for whom the service waits, "" while it doesn't.
func (s *service) waiting() string {
	for _, l := range s.locks.Leases() {
		if l.State == lock.StateWaiting {
			return l.WaitsFor
		}
	}
	return ""
}

// forceUnlock is what an operator's tool does about a lock whose holder must not go on.
func forceUnlock(ctx context.Context, r server) (err error) {
	rdb := r.client()
	defer func() { err = errors.Join(err, rdb.Close()) }()
	locks, err := lock.New(rdb, lock.WithClientID("operator"), lock.WithKeyPrefix(keyPrefix), lock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	was, err := locks.Mutex(lockName).ForceUnlock(ctx)
	if err == nil && !was {
		err = fmt.Errorf("%s was not held", lockName)
	}
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

const (
	lockName  = "order:42"
	leaseTime = 3 * time.Second // the default of 30 s is too long for a quickstart
	keyPrefix = "quickstart:"
)

// service is what a program of yours has: tracing and a lock client. Both services run in this process; each has
// its own clients and tracer, as in two processes.
type service struct {
	name   string
	tracer trace.Tracer
	locks  *lock.Client
}

// open starts both services, and the HTTP server of -metrics.
func (s *story) open(ctx context.Context) (err error) {
	s.shared, err = otelsetup.Start(ctx, otelsetup.Config{
		ServiceName: "quickstart", KeepGlobals: true, LogOutput: s.printer, NoColor: !s.colour,
		LogLevel: slog.LevelError, // renewal failures are warnings, and already shown as spans
	})
	if err != nil {
		return err
	}
	s.onClose(s.shared.Shutdown)
	if s.orders, err = s.start(ctx, "orders"); err != nil {
		return err
	}
	if s.billing, err = s.start(ctx, "billing"); err != nil {
		return err
	}
	return s.serve()
}

func (s *story) start(ctx context.Context, name string) (*service, error) {
	traces, err := otelsetup.Start(ctx, otelsetup.Config{
		ServiceName: name, KeepGlobals: true, LogOutput: s.printer, NoColor: !s.colour, Endpoint: s.flags.otlp,
		SpanProcessors: []sdktrace.SpanProcessor{&spanPrinter{service: name, out: s.printer, seen: s.seen}},
	})
	if err != nil {
		return nil, err
	}
	s.onClose(func(ctx context.Context) error {
		if err := traces.Shutdown(ctx); err != nil {
			return fmt.Errorf("the traces of %s were not sent to %s: %w", name, s.flags.otlp, err)
		}
		return nil
	})
	rdb := s.client()
	locks, err := lock.New(rdb,
		lock.WithClientID(name),
		lock.WithKeyPrefix(keyPrefix),
		lock.WithWatchdog(leaseTime),
		lock.WithTracerProvider(traces.TracerProvider),
		lock.WithMeterProvider(s.shared.MeterProvider),
		lock.WithLogger(s.shared.Logger))
	if err != nil {
		return nil, err
	}
	s.onClose(locks.Close)
	return &service{name: name, tracer: traces.TracerProvider.Tracer("quickstart"), locks: locks}, nil
}

func (s *story) client() *redis.Client {
	rdb := s.redis.client()
	s.onClose(func(context.Context) error { return rdb.Close() })
	return rdb
}

// serve serves /metrics and /debug/locks if -metrics is set.
func (s *story) serve() error {
	if s.flags.metrics == "" {
		return nil
	}
	l, err := net.Listen("tcp", s.flags.metrics)
	if err != nil {
		return fmt.Errorf("-metrics %s: %w", s.flags.metrics, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.shared.Handler())
	mux.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{s.orders.locks, s.billing.locks}}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until it is closed
	}()
	s.onClose(func(context.Context) error {
		err := server.Close()
		<-done
		return err
	})
	s.url = "http://" + l.Addr().String()
	return nil
}

func (s *story) onClose(f func(context.Context) error) { s.closers = append(s.closers, f) }

// close closes everything in reverse order: a lock client before its Redis client, and before the traces, to which it still adds spans.
func (s *story) close(ctx context.Context) error {
	var errs []error
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// request begins what a lock is acquired for: in a program the span of an HTTP request or a job.
func (s *service) request(ctx context.Context, what string) (context.Context, trace.Span, error) {
	ctx, span := s.tracer.Start(ctx, what)
	if !span.IsRecording() {
		return ctx, span, errors.New("nothing to see: tracing is off; unset OTEL_SDK_DISABLED and OTEL_TRACES_SAMPLER")
	}
	return ctx, span, nil
}

// waitsFor returns the owner that the service waits for, "" if it doesn't wait.
func (s *service) waitsFor() string {
	for _, l := range s.locks.Leases() {
		if l.State == lock.StateWaiting {
			return l.WaitsFor
		}
	}
	return ""
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

const (
	storyTime = 16 * time.Second // at most; it takes about eight
	pause     = 600 * time.Millisecond
	failures  = 5 // renewals that fail before Redis answers again
)

// story is what the quickstart shows, act by act. An act ends when its spans have ended.
type story struct {
	*printer
	flags flags
	redis *server
	seen  *record

	shared          *otelsetup.Providers // metrics and logs of both services
	orders, billing *service
	url             string // of the HTTP server, "" without one
	closers         []func(context.Context) error

	lease  *lock.Lease // of orders
	span   trace.Span  // of the request that it is held for
	billed chan outcome
}

// outcome is how billing's work ended.
type outcome struct {
	cause error // of its lease's context
	err   error // of acquiring or releasing
}

func (s *story) tell(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storyTime, fmt.Errorf("the story took longer than %v; is this machine very busy?", storyTime))
	defer cancel()
	s.billed = make(chan outcome, 1)
	defer s.giveUp(ctx)

	s.line("lockdog quickstart: two services, one lock. Redis: %s.", s.redis)
	s.line("A line with a time is a span that lockdog made, as it ends; or a note: waiting, answers, ctx.")
	acts := []struct {
		title string
		play  func(context.Context) error
	}{
		{fmt.Sprintf("orders takes the lock %s, for %v at a time. If it died, Redis would free the lock then.", lockName, leaseTime), s.acquire},
		{fmt.Sprintf("While orders works, lockdog renews its lease every %v, without being asked.", leaseTime/3), s.renewals},
		{"billing wants the same lock. It waits, and knows for whom.", s.wait},
		{s.redis.trouble() + ". Renewals fail, and are tried again while the lease lasts.", s.outage},
		{"orders is done and releases. billing is woken at once, and gets a larger token.", s.release},
		{"An operator takes the lock away by force. billing's ctx ends, and says why.", s.loss},
	}
	for i, act := range acts {
		if i > 0 {
			if err := sleep(ctx, pause); err != nil {
				return err
			}
		}
		s.line("\n%s", s.paint(bold, fmt.Sprintf("%d. %s", i+1, act.title)))
		if err := act.play(ctx); err != nil {
			return err
		}
	}
	return nil
}

// giveUp releases the lock of orders if the story ended early.
func (s *story) giveUp(ctx context.Context) {
	if s.lease == nil || s.lease.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.lease.Release(ctx); err != nil {
		s.note("orders", "release", err.Error())
	}
	s.span.End()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *story) acquire(ctx context.Context) error {
	ctx, span, err := s.orders.request(ctx, "place order 42")
	if err != nil {
		return err
	}
	// WithWait: on a shared server another quickstart may hold the lock.
	l, err := s.orders.locks.Mutex(lockName, lock.WithWait(2*time.Second)).Lock(ctx)
	if err != nil {
		span.End()
		return err
	}
	s.lease, s.span = l, span
	return nil
}

func (s *story) renewals(ctx context.Context) error {
	return s.seen.expect(3, event{"orders", telemetry.SpanRenew.Name, "renewed"})(ctx)
}

func (s *story) wait(ctx context.Context) error {
	go func() { s.billed <- s.bill(ctx) }()
	for s.billing.waitsFor() == "" {
		select {
		case o := <-s.billed:
			return errors.Join(errors.New("billing doesn't wait"), o.cause, o.err)
		default:
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	s.note("billing", "waiting", lockName+" is held by "+s.billing.waitsFor())
	return nil
}

// bill is the work of billing: it acquires the lock, and works until the lock is lost.
func (s *story) bill(ctx context.Context) outcome {
	ctx, span, err := s.billing.request(ctx, "send invoice 42")
	defer span.End()
	if err != nil {
		return outcome{err: err}
	}
	l, err := s.billing.locks.Mutex(lockName).Lock(ctx)
	if err != nil {
		return outcome{err: err}
	}
	<-l.Context().Done() // a program passes this context to what it calls
	return outcome{context.Cause(l.Context()), l.Release(ctx)}
}

func (s *story) outage(ctx context.Context) error {
	failed := s.seen.expect(failures, event{"orders", telemetry.SpanRenew.Name, "error"})
	s.redis.refuse(true)
	err := failed(ctx)
	renewed := s.seen.expect(1, event{"orders", telemetry.SpanRenew.Name, "renewed"})
	if err == nil {
		s.note("redis", "answers", "again")
	}
	s.redis.refuse(false)
	if err == nil {
		err = renewed(ctx)
	}
	if err == nil {
		err = s.lease.Err() // it was never lost
	}
	return err
}

func (s *story) release(ctx context.Context) error {
	renewed := s.seen.expect(1, event{"billing", telemetry.SpanRenew.Name, "renewed"})
	defer s.span.End()
	if err := s.lease.Release(ctx); err != nil {
		return err
	}
	return renewed(ctx)
}

func (s *story) loss(ctx context.Context) error {
	held := s.seen.expect(1, event{"billing", telemetry.SpanHold.Name, ""})
	if err := s.forceUnlock(ctx); err != nil {
		return fmt.Errorf("the operator: %w", err)
	}
	select {
	case o := <-s.billed:
		if !errors.Is(o.cause, lock.ErrLost) || !errors.Is(o.err, lock.ErrLost) {
			return fmt.Errorf("billing's lock was not lost: %w", errors.Join(o.cause, o.err))
		}
		// The context ends before the spans; the story is easier to follow the other way round.
		if err := held(ctx); err != nil {
			return err
		}
		s.note("billing", "ctx", "ended: "+o.cause.Error())
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forceUnlock is what an operator's tool does about a holder that must not go on.
func (s *story) forceUnlock(ctx context.Context) (err error) {
	locks, err := lock.New(s.client(), lock.WithClientID("operator"), lock.WithKeyPrefix(keyPrefix), lock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	held, err := locks.Mutex(lockName).ForceUnlock(ctx)
	if err == nil && !held {
		err = fmt.Errorf("%s was not held", lockName)
	}
	return err
}

// next tells where to go from here.
func (s *story) next() {
	s.line("")
	if s.flags.otlp != "" {
		s.line("The traces go to %s:", s.flags.otlp)
		for _, one := range []*service{s.orders, s.billing} {
			for _, l := range one.locks.Recent() {
				s.line("  service %-8s trace %s", one.name, l.TraceID)
			}
		}
		s.line("From billing's acquire a link leads to the trace of orders, which was in its way.")
	}
	if s.url != "" {
		s.line("Metrics are at %s/metrics, and what is held, awaited and lost at %[1]s/debug/locks, until you press Ctrl-C.", s.url)
	}
	if s.flags.otlp == "" && s.url == "" {
		s.line("Go on: -otlp localhost:4317 shows the same in Jaeger, -metrics localhost:9464 in Prometheus; -h has more.")
	}
}

// stay holds a lock with the default lease until the program is interrupted, for the pages to have something to show.
func (s *story) stay(ctx context.Context) error {
	// The interrupt releases it; it doesn't cancel it.
	held := context.WithoutCancel(ctx)
	l, err := s.orders.locks.Mutex("report:daily", lock.WithWatchdog(lock.DefaultLease), lock.WithWait(2*time.Second)).Lock(held)
	if err != nil {
		return err
	}
	<-ctx.Done()
	if err := l.Release(held); !errors.Is(err, lock.ErrLost) { // a loss was logged
		return err
	}
	return nil
}

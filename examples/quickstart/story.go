package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

const (
	storyTime = 16 * time.Second // at the most; it takes about eight
	pause     = 600 * time.Millisecond
	failures  = 5 // renewals that fail before Redis is well again
)

// story is what the quickstart shows, act by act. An act ends when the spans it is about have come.
type story struct {
	*shop
	redis server
	out   *printer

	order lease        // orders' lock
	bill  chan outcome // what becomes of billing's
}

// lease is a lock that is held, with the end of the request it is held for.
type lease struct {
	*lock.Lease
	end func()
}

// outcome is how billing's work ended.
type outcome struct {
	why error // of the lease's context
	err error // of taking or releasing
}

func (s *story) tell(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storyTime, fmt.Errorf("the story took longer than %v; is this machine very busy?", storyTime))
	defer cancel()
	s.bill = make(chan outcome, 1)
	defer s.giveUp(ctx)

	s.out.line("lockdog quickstart: two services, one lock. Redis: %s.", s.redis)
	s.out.line("A line with a time is a span that lockdog made, as it ends; or a note: waiting, answers, ctx.")
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
		s.out.chapter(i+1, act.title)
		if err := act.play(ctx); err != nil {
			return err
		}
		if i+1 < len(acts) {
			if err := rest(ctx, pause); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveUp releases what is held when the story ended early.
func (s *story) giveUp(ctx context.Context) {
	if s.order.Lease == nil || s.order.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.order.Release(ctx); err != nil {
		s.out.note(s.orders.name, "release", err.Error())
	}
	s.order.end()
}

// rest gives the reader time.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// more waits for n more spans than there were before do.
func (s *story) more(ctx context.Context, n int, service, span, outcome string, do func() error) error {
	e := event{service, span, outcome}
	had := s.seen.of(e)
	if err := do(); err != nil {
		return err
	}
	return s.seen.until(ctx, e, had+n)
}

func nothing() error { return nil }

func (s *story) acquire(ctx context.Context) error {
	ctx, span, err := s.orders.request(ctx, "place order 42")
	if err != nil {
		return err
	}
	// WithWait: on a shared server another quickstart may be at it.
	l, err := s.orders.locks.Mutex(lockName, lock.WithWait(2*time.Second)).Lock(ctx)
	if err != nil {
		span.End()
		return err
	}
	s.order = lease{l, func() { span.End() }}
	return nil
}

func (s *story) renewals(ctx context.Context) error {
	return s.more(ctx, 3, s.orders.name, telemetry.SpanRenew.Name, "renewed", nothing)
}

func (s *story) wait(ctx context.Context) error {
	go func() { s.bill <- s.work(ctx) }()
	for s.billing.waiting() == "" {
		select {
		case o := <-s.bill: // it should not be over yet
			return errors.Join(errors.New("billing doesn't wait"), o.why, o.err)
		default:
		}
		if err := rest(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	s.out.note(s.billing.name, "waiting", lockName+" is held by "+s.billing.waiting())
	return nil
}

// work is what billing does: take the lock, and hold it as long as it may.
func (s *story) work(ctx context.Context) (o outcome) {
	ctx, span, err := s.billing.request(ctx, "send invoice 42")
	defer span.End()
	if err != nil {
		return outcome{err: err}
	}
	l, err := s.billing.locks.Mutex(lockName).Lock(ctx)
	if err != nil {
		return outcome{err: err}
	}
	<-l.Context().Done() // a program would give this context to what it calls
	return outcome{context.Cause(l.Context()), l.Release(ctx)}
}

func (s *story) outage(ctx context.Context) error {
	back := false
	defer func() {
		if !back {
			s.redis.refuse(false)
		}
	}()
	err := s.more(ctx, failures, s.orders.name, telemetry.SpanRenew.Name, "error", func() error {
		s.redis.refuse(true)
		return nil
	})
	if err != nil {
		return err
	}
	err = s.more(ctx, 1, s.orders.name, telemetry.SpanRenew.Name, "renewed", func() error {
		s.redis.refuse(false)
		back = true
		s.out.note("redis", "answers", "again")
		return nil
	})
	if err == nil {
		err = s.order.Err() // it was never lost
	}
	return err
}

func (s *story) release(ctx context.Context) error {
	return s.more(ctx, 1, s.billing.name, telemetry.SpanRenew.Name, "renewed", func() error {
		defer s.order.end()
		return s.order.Release(ctx)
	})
}

func (s *story) loss(ctx context.Context) error {
	if err := forceUnlock(ctx, s.redis); err != nil {
		return fmt.Errorf("the operator: %w", err)
	}
	select {
	case o := <-s.bill:
		if !errors.Is(o.why, lock.ErrLost) || !errors.Is(o.err, lock.ErrLost) {
			return fmt.Errorf("billing's lock was not lost: %w", errors.Join(o.why, o.err))
		}
		// The context ends first, the spans follow; the reader is better off the other way round.
		if err := s.seen.until(ctx, event{s.billing.name, telemetry.SpanHold.Name, ""}, 1); err != nil {
			return err
		}
		s.out.note(s.billing.name, "ctx", "ended: "+o.why.Error())
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// next says where to go from here.
func (s *story) next(f flags, p *page) {
	s.out.line("")
	if f.otlp != "" {
		s.out.line("The traces go to %s:", f.otlp)
		for _, one := range []*service{s.orders, s.billing} {
			for _, l := range one.locks.Recent() {
				s.out.line("  service %-8s trace %s", one.name, l.TraceID)
			}
		}
		s.out.line("From billing's acquire a link leads to the trace of orders, which was in its way.")
	}
	if p != nil {
		s.out.line("Metrics are at %s, and what is held, awaited and lost at %s, until you press Ctrl-C.", p.url, p.locks)
	}
	if f.otlp == "" && p == nil {
		s.out.line("Go on: -otlp localhost:4317 shows the same in Jaeger, -metrics localhost:9464 in Prometheus; -h has more.")
	}
}

// stay keeps one lock with the default lease alive until the program is interrupted, so that there is something to see.
func (s *story) stay(ctx context.Context) error {
	// The interrupt is to release it, not to cancel it.
	lease := context.WithoutCancel(ctx)
	l, err := s.orders.locks.Mutex("report:daily", lock.WithWatchdog(lock.DefaultLease), lock.WithWait(2*time.Second)).Lock(lease)
	if err != nil {
		return err
	}
	<-ctx.Done()
	if err := l.Release(lease); !errors.Is(err, lock.ErrLost) { // a loss has been told
		return err
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/lockdog/lockdog/lock"
)

const (
	lockName  = "order:42"
	leaseTime = 3 * time.Second // shorter than the default of 30 s, so that the story is short
)

// story has two services that need one lock, and an operator.
type story struct {
	out                       io.Writer
	logger                    *slog.Logger
	orders, billing, operator *lock.Client
	refuse                    func(reply string) // makes Redis reply to every command with this error; "" ends that
}

func (s *story) play(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	billed := make(chan error, 1)

	s.title("1. orders takes the lock order:42, for 3 s. If it died, Redis would free the lock then.")
	// Like the span that otelhttp makes for a request.
	request, span := otel.Tracer("quickstart").Start(ctx, "place order 42")
	err := s.orders.Mutex(lockName).Do(request, func(leased context.Context, _ *lock.Lease) error {
		s.title("2. While orders works, lockdog renews the lock, every second.")
		if err := work(leased, 3500*time.Millisecond); err != nil {
			return err
		}

		s.title("3. billing wants the same lock, and waits: the span of its acquire comes when that ends.")
		go func() { billed <- s.bill(ctx) }()
		if err := work(leased, time.Second); err != nil {
			return err
		}

		s.title("4. Redis refuses all commands. Renewals fail, and are tried again while the lease lasts.")
		s.refuse("LOADING Redis is loading the dataset in memory") // as after a restart
		err := work(leased, 700*time.Millisecond)
		s.refuse("")
		if err == nil {
			err = work(leased, 800*time.Millisecond)
		}

		s.title("5. orders is done and releases. billing is woken at once, and gets a larger token.")
		return err
	})
	span.End()
	if err == nil {
		err = work(ctx, 1500*time.Millisecond)
	}
	if err != nil {
		return err
	}

	s.title("6. An operator takes the lock away by force. The ctx of billing's work ends, and says why.")
	if _, err := s.operator.Mutex(lockName).ForceUnlock(ctx); err != nil {
		return err
	}
	if err := <-billed; !errors.Is(err, lock.ErrLost) {
		return fmt.Errorf("billing did not lose the lock: %w", err)
	}
	return work(ctx, 500*time.Millisecond) // lets lockdog report the loss: it does so after the ctx has ended
}

// bill works until the lock is lost.
func (s *story) bill(ctx context.Context) error {
	ctx, span := otel.Tracer("quickstart").Start(ctx, "send invoice 42")
	defer span.End()
	return s.billing.Mutex(lockName).Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
		err := work(ctx, time.Hour)
		s.logger.WarnContext(ctx, "billing stops its work", "cause", err)
		return err
	})
}

// work stands for the work of a service under a lock. It stops when ctx, the lease's Context, ends: then another may
// hold the lock.
func work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *story) title(text string) { _, _ = fmt.Fprintf(s.out, "\n%s\n", text) }

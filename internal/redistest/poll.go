package redistest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// finalError ends a poll early, because waiting longer can't help.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func final(err error) error { return finalError{err} }

// poll calls try every few milliseconds until it returns nil. After limit, or if try returns a final error, poll
// returns the last error. The ctx of try ends at the limit.
func poll(limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		var stop finalError
		if errors.As(err, &stop) {
			return stop.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", limit, err)
		case <-tick.C:
		}
	}
}

package redistest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// finalError ends a poll early, because waiting longer can't help.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func final(err error) error { return finalError{err} }

// patience is how long this package waits for what must happen, on a machine that gives us hardly any CPU. On an idle
// one a server starts in 20 ms, and the slowest shape, a Cluster of six, in three seconds.
const patience = 2 * time.Minute

const pollEvery = 5 * time.Millisecond

// poll calls try every few milliseconds until it returns nil. After patience, or if try returns a final error, poll
// returns the last error. The ctx of try ends then.
func poll(try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
			return fmt.Errorf("after %v: %w", patience, err)
		case <-tick.C:
		}
	}
}

// must ends the test if err isn't nil.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

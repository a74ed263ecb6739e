package lock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockdog/lockdog/lock"
)

// A Lease that no Lock returned, as a careless fake has it, is one that has ended.
func TestZeroLease(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]*lock.Lease{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l.Heartbeat()
			if l.Name() != "" || l.Owner() != "" || l.Token() != 0 || len(l.Tokens()) != 0 || !l.Deadline().IsZero() {
				t.Errorf("it is of %q, for %q, with token %d, tokens %v, until %v", l.Name(), l.Owner(), l.Token(), l.Tokens(), l.Deadline())
			}
			select {
			case <-l.Ended():
			default:
				t.Error("it hasn't ended")
			}
			ctx := l.Context()
			for what, err := range map[string]error{
				"Err": l.Err(), "Release": l.Release(t.Context()), "Release(nil)": l.Release(nil), //nolint:staticcheck // on purpose
				"the cause of Context": context.Cause(ctx),
			} {
				if !errors.Is(err, lock.ErrInvalid) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("Context: %v", ctx.Err())
			}
		})
	}
}

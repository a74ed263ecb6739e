package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

const maxTries = 4 // see retry

// retry calls try until it succeeds, with a pause before each new try (redisfail.Backoff). It gives up if ctx has
// ended, the error is final (redisfail.Failure.Retry), a try has got no reply in its time, all tries are used (0: any
// number), or the next try would begin after the time until (zero: no limit).
//
//	operation                               tries     until
//	acquire, one lock or several            maxTries  TryLock gives up; zero for Lock and for a Quorum
//	release, one lock or several            any       the deadline of the lease
//	change of a counter                     any       one lease from now
//	force unlock, inspect, count, token     maxTries  zero; a force unlock ends if it may have been done
//
// retry returns the error of the last try. If that try got no reply in its time, which may have been short, the error
// of the try before is added. If the end of ctx cut the last try short, retry returns the error of the try before
// instead. If ctx has ended, its cause goes first.
func retry(ctx context.Context, tries int, until time.Time, try func() error) error {
	var last error
	for n := 1; ; n++ {
		err := try()
		noReply := errors.Is(err, dispatch.ErrNoReply)
		switch {
		case err == nil:
			return nil
		case last != nil && ctx.Err() != nil && failureOf(ctx, err).Unclear:
		case last != nil && noReply:
			last = &redisfail.RetriedError{Last: err, Before: last}
		default:
			last = err
		}
		pause := redisfail.Backoff(n)
		if noReply || n == tries || !redisfail.Classify(err).Retry || !until.IsZero() && time.Until(until) <= pause ||
			!redisfail.Sleep(ctx, pause) {
			return cutOff(ctx, last)
		}
	}
}

// failureOf classifies the error of a try. One that only says that ctx has ended counts as no reply.
func failureOf(ctx context.Context, err error) redisfail.Failure {
	if endedBy(ctx, err) {
		err = dispatch.ErrNoReply
	}
	return redisfail.Classify(err)
}

// endedBy reports whether ctx has ended, and err is that end or its cause.
func endedBy(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	return cause != nil && (errors.Is(err, cause) || errors.Is(err, ctx.Err()))
}

// cutOff returns the error of an operation that failed. If ctx has ended, its cause goes first.
func cutOff(ctx context.Context, failed error) error {
	cause := context.Cause(ctx)
	if cause == nil {
		return failed
	}
	if endedBy(ctx, failed) {
		return cause
	}
	return fmt.Errorf("%w, after: %w", cause, failed)
}

package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// raiseTokens makes the largest token of the votes the token of a majority. It returns that token, and the votes whose
// lock isn't known to be gone.
func (t *quorumTry) raiseTokens(granted []vote) (token int64, stand []vote, err error) {
	for _, v := range granted {
		token = max(token, v.Token)
	}
	type raised struct {
		at   int
		kept bool
		err  error
	}
	results := make(chan raised, len(granted))
	asked, sure := 0, 0
	for i, v := range granted {
		if v.Token == token {
			sure++
			continue
		}
		asked++
		ctx, cancel := t.limited(v.nodeIndex) // not in the goroutine: t may replace t.spanCtxs at the same time
		go func() {
			defer cancel()
			kept, err := raiseToken(ctx, v, token)
			results <- raised{i, kept, err}
		}()
	}
	gone := make([]bool, len(granted))
	var failed memberErrors
	for ; asked > 0 && sure < t.m.q.need; asked-- {
		switch r := <-results; {
		case r.err != nil:
			failed = append(failed, atNode(t.m.locks[granted[r.at].nodeIndex].node(), r.err))
		case !r.kept:
			gone[r.at] = true
			failed = append(failed, atNode(t.m.locks[granted[r.at].nodeIndex].node(), errors.New("the lock is gone")))
		default:
			sure++
		}
	}
	if sure < t.m.q.need {
		return 0, granted, fmt.Errorf("a majority granted it, but didn't confirm its token: %w", failed)
	}
	for i, v := range granted {
		if !gone[i] {
			stand = append(stand, v)
		}
	}
	return token, stand, nil
}

// raiseToken raises a node's token to that of the lease. It reports whether the lock is still held there.
func raiseToken(ctx context.Context, v vote, token int64) (kept bool, err error) {
	lk := v.claim.lock
	reply, err := lk.c.ops.simple(ctx, telemetry.OpAcquire, func(r *script.Request) {
		script.RaiseArgs(r, v.claim.ownedLock(), token)
	})
	if err != nil {
		return false, err
	}
	return script.ParseRaise(reply), nil
}

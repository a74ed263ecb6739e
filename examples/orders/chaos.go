package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// chaos lets a share of the calls that renew leases fail, as a bad network does: half of them never reach Redis, the
// other half have renewed when the answer is lost. The caller can't tell which.
//
// It is no network. It sits in the client that renews, so acquires and releases are left alone; so are connections and
// their greetings, and a call that fails does so at once. The share is of calls: each renews up to 256 leases, and each retry
// is another call. With a small share no lock is lost, as lockdog tries again for as long as a lease lasts.
type chaos struct {
	share float64

	mu     sync.Mutex
	random *rand.Rand
}

var errChaos = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("orders -chaos")}

func newChaos(share float64, random *rand.Rand) *chaos {
	return &chaos{share: share, random: random}
}

// DialHook implements redis.Hook.
func (c *chaos) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (c *chaos) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		call := func() error { return next(ctx, cmd) }
		if !renews(cmd) {
			return call()
		}
		return c.strike(call)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *chaos) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		call := func() error { return next(ctx, cmds) }
		if !slices.ContainsFunc(cmds, renews) {
			return call()
		}
		err := c.strike(call)
		if errors.Is(err, errChaos) {
			for _, cmd := range cmds { // of a pipeline go-redis leaves that to the hook
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// renews tells renewals, which are scripts, from the greetings of a new connection: those pass the hooks, too.
func renews(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" || cmd.Name() == "eval" }

func (c *chaos) strike(call func() error) error {
	c.mu.Lock()
	fails, asked := c.random.Float64() < c.share, c.random.IntN(2) == 0
	c.mu.Unlock()
	if !fails {
		return call()
	}
	if asked {
		_ = call() // its answer is what gets lost
	}
	return errChaos
}

// What is random draws from streams of its own, so that one seed gives the same chaos whatever the load.
const (
	streamChaos = iota
	streamLoad
)

// newRand gives one stream of a seed; seed 0 is another one each time.
func newRand(seed, stream uint64) *rand.Rand {
	if seed == 0 {
		seed = rand.Uint64()
	}
	return rand.New(rand.NewPCG(seed, stream))
}

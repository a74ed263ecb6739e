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

// chaos makes a share of the renewal calls fail, as a bad network does: half of them never reach Redis, of the other half the
// response is lost. The caller can't tell which.
//
// It is a hook of the client that renews; acquires, releases and new connections are not affected, and a call that fails does so at
// once. A call renews up to 256 leases, and each retry is another call. With a small share no lock is lost, as lockdog retries
// for as long as a lease lasts.
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
		return c.strike([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *chaos) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return c.strike(cmds, func() error { return next(ctx, cmds) })
	}
}

func (c *chaos) strike(cmds []redis.Cmder, call func() error) error {
	if !slices.ContainsFunc(cmds, renews) {
		return call()
	}
	c.mu.Lock()
	fails, sent := c.random.Float64() < c.share, c.random.IntN(2) == 0
	c.mu.Unlock()
	if !fails {
		return call()
	}
	if sent {
		_ = call() // its response is lost
	}
	for _, cmd := range cmds {
		cmd.SetErr(errChaos) // in a pipeline go-redis leaves this to the hook
	}
	return errChaos
}

// renews tells renewals, which are scripts, from the handshake of a new connection, which passes the hooks, too.
func renews(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" || cmd.Name() == "eval" }

// Each use of random numbers has its own stream: one seed makes the same chaos whatever the load.
const (
	streamChaos = iota
	streamLoad
)

// newRand returns a stream of a seed; of seed 0, a different one each time.
func newRand(seed, stream uint64) *rand.Rand {
	if seed == 0 {
		seed = rand.Uint64()
	}
	return rand.New(rand.NewPCG(seed, stream))
}

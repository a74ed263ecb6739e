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

// chaos makes a share of the renewal calls fail, as a bad network does. Half of these calls never reach Redis; the
// response to the other half is lost. The caller can't tell which.
//
// It is a hook of the client for renewals, so acquires and releases aren't affected; nor are new connections. A failing
// call waits for no timeout. A call renews up to 256 leases, and each retry is another call. With a small share no lock
// is lost, because lockdog retries as long as a lease lasts.
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
		_ = call() // the response is lost
	}
	for _, cmd := range cmds {
		cmd.SetErr(errChaos) // the hook of a pipeline must set the error of each command
	}
	return errChaos
}

// renews reports whether a command is a renewal. Renewals are scripts; the commands that start a connection also go
// through the hooks.
func renews(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" || cmd.Name() == "eval" }

// The streams of random numbers. Each use has its own stream, so one seed gives the same chaos for any load.
const (
	streamChaos = iota
	streamLoad
)

// newRand returns a stream of random numbers for a seed. Seed 0 means a different one each time.
func newRand(seed, stream uint64) *rand.Rand {
	if seed == 0 {
		seed = rand.Uint64()
	}
	return rand.New(rand.NewPCG(seed, stream))
}

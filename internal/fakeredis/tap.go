package fakeredis

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Tap is a [redis.Hook] that delays commands or makes them fail, each command of a pipeline separately. A nil function
// does nothing.
type Tap struct {
	// Up is called before a command is sent, for all commands of a pipeline concurrently. If it returns an error, the
	// command isn't sent, and the caller gets that error.
	Up func(redis.Cmder) error
	// Down is called for each command that was sent, in order, before the caller gets its reply or error. If Down
	// returns an error, the caller gets that instead.
	Down func(redis.Cmder) error
}

// DialHook implements redis.Hook.
func (Tap) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (t Tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return t.process([]redis.Cmder{cmd}, func([]redis.Cmder) error {
			cmd.SetErr(next(ctx, cmd))
			return nil
		})
	}
}

// ProcessPipelineHook implements redis.Hook.
func (t Tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return t.process(cmds, func(cmds []redis.Cmder) error { return next(ctx, cmds) })
	}
}

// process sends the commands for which Up returns nil. It returns the first error.
func (t Tap) process(cmds []redis.Cmder, send func([]redis.Cmder) error) error {
	failed := make([]error, len(cmds))
	if t.Up != nil {
		var up sync.WaitGroup
		for i, cmd := range cmds {
			up.Go(func() { failed[i] = t.Up(cmd) })
		}
		up.Wait()
	}
	var sent []redis.Cmder
	for i, cmd := range cmds {
		if failed[i] == nil {
			sent = append(sent, cmd)
		}
	}
	var first error
	if len(sent) > 0 {
		first = send(sent)
	}
	for i, cmd := range cmds {
		if failed[i] == nil && t.Down != nil {
			failed[i] = t.Down(cmd)
		}
		if failed[i] != nil {
			cmd.SetErr(failed[i])
		}
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return first
}

package redistest

import "github.com/redis/go-redis/v9"

// Hook is a redis.Hook that passes everything on. Embedded in another one it leaves that only what it is about.
type Hook struct{}

// DialHook implements redis.Hook.
func (Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// order is a stored order.
type order struct {
	ID      string `json:"id"`
	Version int64  `json:"version"`
	Token   int64  `json:"token"` // of the grant under which it was written
}

// store keeps each order in a hash in Redis.
type store struct {
	rdb    *redis.Client
	prefix string // of its keys
}

// errStale is returned to a writer if a later holder of the lock has already written.
var errStale = errors.New("orders: a later holder of the lock has written")

// get reads an order. The version is 0 if it was never written.
func (s *store) get(ctx context.Context, id string) (order, error) {
	o := order{ID: id}
	values, err := s.rdb.HMGet(ctx, s.key(id), "version").Result()
	if err != nil {
		return o, fmt.Errorf("read order: %w", err)
	}
	if text, ok := values[0].(string); ok {
		if _, err := fmt.Sscan(text, &o.Version); err != nil {
			return o, fmt.Errorf("order %q has no number for a version: %w", id, err)
		}
	}
	return o, nil
}

// putScript writes unless a holder with a larger token has written. The lock alone can't guarantee that: a holder that
// was cut off may write late.
//
// KEYS[1] the order; ARGV[1] the version, ARGV[2] the token. Returns 1 if it was written, otherwise 0.
var putScript = redis.NewScript(`
if tonumber(redis.call('HGET', KEYS[1], 'token') or '0') > tonumber(ARGV[2]) then
	return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'token', ARGV[2])
return 1
`)

// put writes an order, or fails with errStale.
func (s *store) put(ctx context.Context, o order) error {
	written, err := putScript.Run(ctx, s.rdb, []string{s.key(o.ID)}, o.Version, o.Token).Int()
	switch {
	case err != nil:
		return fmt.Errorf("write order: %w", err)
	case written == 0:
		return errStale
	default:
		return nil
	}
}

func (s *store) key(id string) string { return s.prefix + "order:" + id }

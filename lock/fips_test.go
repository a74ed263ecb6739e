package lock_test

import (
	"context"
	"crypto/fips140"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// childFIPS takes a lock, and gives it back.
func childFIPS(addr, prefix string, say func(string, ...any)) error {
	if !fips140.Enforced() {
		return errors.New("all of crypto is allowed")
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	c, err := lock.New(rdb, lock.WithKeyPrefix(prefix))
	if err != nil {
		return err
	}
	err = c.Mutex("job").Do(context.Background(), func(_ context.Context, l *lock.Lease) error {
		say("taken")
		return l.Err()
	})
	return errors.Join(err, c.Close(context.Background()), rdb.Close())
}

// A program that may use nothing but what FIPS 140 approves can take locks: the SHA-1 of a script is but its name.
func TestFIPS140Only(t *testing.T) {
	t.Parallel()
	sp := redistest.Shared(t)
	startChild(t, "fips", sp.Addr(), sp.Prefix(), "GODEBUG=fips140=only").expect(t, "taken")
}

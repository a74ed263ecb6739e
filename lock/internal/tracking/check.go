package tracking

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// keyCheck is one read of a key.
type keyCheck struct {
	Key
	entries   []Watched
	deadlines []time.Time // of the entries, taken before the read: a renewal in between makes no entry suspect

	values *redis.Cmd         // one element per entry; nil: the entry is missing
	ttl    *redis.DurationCmd // of a hash: how long all entries last
}

// newKeyCheck returns a check of a key. Trackers.mu must be held.
func newKeyCheck(k *watchedKey) *keyCheck {
	check := &keyCheck{Key: k.Key, entries: slices.Clone(k.entries)}
	for _, e := range k.entries {
		check.deadlines = append(check.deadlines, e.Deadline())
	}
	return check
}

// send adds the commands of the check to a pipeline.
func (k *keyCheck) send(ctx context.Context, pipe redis.Pipeliner) {
	args := []any{"hmget", k.Name}
	if k.Sorted {
		args[0] = "zmscore"
	}
	for _, e := range k.entries {
		args = append(args, e.StoredOwner())
	}
	k.values = pipe.Do(ctx, args...)
	if !k.Sorted {
		k.ttl = pipe.PTTL(ctx, k.Name)
	}
}

// suspects returns the entries that are missing, or (only in a hash) will expire before their deadline.
func (k *keyCheck) suspects(now time.Time) (suspects []Watched, err error) {
	values, err := k.values.Slice()
	ttl := time.Duration(-1) // it doesn't expire
	if k.ttl != nil {
		ttl, err = k.ttl.Val(), cmp.Or(err, k.ttl.Err())
	}
	switch {
	case redisfail.IsWrongType(err):
		return k.entries, nil
	case err != nil:
		return nil, err
	case len(values) != len(k.entries):
		return nil, fmt.Errorf("lockdog: %d values for %d entries", len(values), len(k.entries))
	}
	for i, e := range k.entries {
		if values[i] == nil || ttl >= 0 && now.Add(ttl).Before(k.deadlines[i]) {
			suspects = append(suspects, e)
		}
	}
	return suspects, nil
}

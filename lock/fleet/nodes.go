package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// nodes returns the primaries.
func (r *Reader) nodes(ctx context.Context) ([]*redis.Client, error) {
	if r.cluster == nil {
		return []*redis.Client{r.single}, nil
	}
	var mu sync.Mutex
	var nodes []*redis.Client
	err := r.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}

// nodeOf returns the primary of a key.
func (r *Reader) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	if r.cluster == nil {
		return r.single, nil
	}
	return r.cluster.MasterForKey(ctx, key)
}

// atNodes calls read for chunks of the keys, each on its primary, and returns all that it has read, and the errors.
// After an error other than a *refusedError, it doesn't read the other keys of that node. It asks the primaries
// concurrently, so that a silent one leaves time for the others.
func atNodes[T any](
	ctx context.Context, r *Reader, keys iter.Seq[string], read func(node *redis.Client, keys []string) ([]T, error),
) (all []T, errs []error) {
	byNode := map[*redis.Client][]string{}
	for _, key := range slices.Sorted(keys) {
		node, err := r.nodeOf(ctx, key)
		if err != nil {
			errs = append(errs, fmt.Errorf("fleet: %q: %w", key, err))
			continue
		}
		byNode[node] = append(byNode[node], key)
	}
	var mu sync.Mutex
	chunk := func(node *redis.Client, keys []string) bool {
		list, err := read(node, keys)
		mu.Lock()
		defer mu.Unlock()
		var part *refusedError
		switch {
		case errors.As(err, &part):
			errs = append(errs, fmt.Errorf("fleet: %q: %w", part.first, part))
		case err != nil:
			errs = append(errs, atNode(node, err))
			return false
		}
		all = append(all, list...)
		return true
	}
	var nodes sync.WaitGroup
	for node, keys := range byNode {
		nodes.Go(func() {
			for some := range slices.Chunk(keys, readCount) {
				if !chunk(node, some) {
					return
				}
			}
		})
	}
	nodes.Wait()
	return all, errs
}

func atNode(node *redis.Client, err error) error {
	return fmt.Errorf("fleet: %s: %w", node.Options().Addr, err)
}

// exec sends a node's commands. If the slot of some commands has left the node, it sends these again, to the slot's new
// node, and moved is true. err is the error of a command that got no answer. If Redis answered a command with an error,
// only that command has this error.
func (r *Reader) exec(ctx context.Context, pipe redis.Pipeliner) (moved bool, err error) {
	for pipe.Len() > 0 {
		cmds, _ := pipe.Exec(ctx)
		pipe = r.rdb.Pipeline()
		for _, cmd := range cmds {
			var answer redis.Error
			switch err := cmd.Err(); {
			case !moved && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")):
				cmd.SetErr(nil)
				_ = pipe.Process(ctx, cmd)
			case err != nil && !errors.As(err, &answer):
				return moved, err
			}
		}
		moved = moved || pipe.Len() > 0
	}
	return moved, nil
}

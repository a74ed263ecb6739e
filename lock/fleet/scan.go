package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

const (
	// scanCount is how many keys Redis looks at in one SCAN, which takes Redis less than a millisecond. After each SCAN
	// the reader pauses for as long as Redis took to answer since the last pause, a second at most. So the reader uses
	// at most half of Redis's time, unless Redis is very slow.
	scanCount = 1000
	readCount = 100        // how many keys one pipeline reads
	mostRead  = 10_000     // how many readers of a lock, waiters in a queue, and records of a client are read
	permits   = ":timeout" // suffix of the key that has a semaphore's permits
)

// Locks reads all locks whose name matches a pattern, in which '*', '?', '[a-c]' and '\' mean the same as in Redis; ""
// is "*". Mutexes and read-write locks come first, then semaphores; there is no other order. Each lock comes once.
// Redis looks at all its keys twice, 1,000 at a time and with pauses: some seconds for ten million keys.
//
// If a node can't be read, or refuses to read some keys, one error comes for it with a zero Lock, and the other nodes
// are read. The loop ends early at a break, after ctx has ended, or with an error if the pattern is malformed or the
// nodes of the Cluster aren't known.
func (r *Reader) Locks(ctx context.Context, pattern string) iter.Seq2[Lock, error] {
	return func(yield func(Lock, error) bool) {
		pattern = cmp.Or(pattern, "*")
		matches, err := matcher(pattern)
		if err != nil {
			yield(Lock{}, err)
			return
		}
		nodes, err := r.nodes(ctx)
		if err != nil {
			yield(Lock{}, fmt.Errorf("fleet: nodes of the Cluster: %w", err))
			return
		}
		s := &scan{
			Reader: r, pattern: pattern, matches: matches, yield: yield,
			seen: map[string]bool{}, refused: map[*redis.Client]*refusedError{},
		}
		failed := map[*redis.Client]bool{}
		fail := func(node *redis.Client, err error) bool {
			failed[node] = true
			return yield(Lock{}, atNode(node, err)) && ctx.Err() == nil
		}
		for _, pass := range []func(context.Context, *redis.Client) (bool, error){s.hashes, s.semaphores} {
			for _, node := range nodes {
				if failed[node] {
					continue
				}
				goOn, err := pass(ctx, node)
				if err != nil {
					goOn = fail(node, err)
				}
				if !goOn {
					return
				}
			}
		}
		for _, node := range nodes {
			if err := s.refused[node]; err != nil && !failed[node] && !fail(node, err) {
				return
			}
		}
	}
}

// scan is one run of Locks.
type scan struct {
	*Reader
	pattern string
	matches func(name string) bool // whether a name matches pattern
	yield   func(Lock, error) bool
	waits   map[string][]waitgraph.Wait     // by the name of the awaited lock; nil: not read yet
	seen    map[string]bool                 // type and key of each lock yielded: SCAN may return a key more than once
	refused map[*redis.Client]*refusedError // keys that the user may not read
}

// hashes yields the locks of a node that are hashes. It reports whether to continue.
func (s *scan) hashes(ctx context.Context, node *redis.Client) (bool, error) {
	return s.each(ctx, node, escape(s.prefix)+s.pattern, "hash", (*batch).hashes, func(key string) []string {
		return []string{key}
	})
}

// semaphores yields the semaphores of a node, found by the keys of their permits. So it misses those whose permits are
// all free.
func (s *scan) semaphores(ctx context.Context, node *redis.Client) (bool, error) {
	return s.each(ctx, node, "*"+permits, "zset", (*batch).semaphores, func(key string) []string {
		var of []string
		for _, key := range semaphoresOf(key) {
			if name, ok := strings.CutPrefix(key, s.prefix); ok && s.matches(name) {
				of = append(of, key)
			}
		}
		return of
	})
}

// semaphoresOf returns the keys of the semaphores whose permits may be at a key: "x" and "{x}" have the same permits
// key.
func semaphoresOf(key string) []string {
	key, ok := strings.CutSuffix(key, permits)
	if !ok {
		return nil
	}
	inner, ok := strings.CutPrefix(key, "{")
	if inner, ok2 := strings.CutSuffix(inner, "}"); ok && ok2 && !strings.Contains(inner, "{") {
		return []string{inner, key}
	}
	return []string{key}
}

// each scans a node for keys of one Redis type, and yields the locks that they belong to. of returns the keys of the
// locks that a scanned key may belong to, and how reads these locks. It reports whether to continue.
func (s *scan) each(
	ctx context.Context, node *redis.Client, match, kind string,
	how func(*batch, context.Context) error, of func(key string) []string,
) (bool, error) {
	var cursor uint64
	for {
		began := time.Now()
		keys, next, err := node.ScanType(ctx, cursor, match, scanCount, kind).Result()
		if err != nil {
			return false, err
		}
		busy := time.Since(began)
		var fresh []string
		for _, key := range keys {
			for _, key := range of(key) {
				if !s.seen[kind+key] {
					fresh = append(fresh, key)
				}
			}
		}
		for len(fresh) > 0 {
			some := fresh[:min(len(fresh), readCount)]
			fresh = fresh[len(some):]
			began = time.Now()
			locks, err := s.read(ctx, node, some, how, false)
			busy += time.Since(began)
			var part *refusedError
			switch {
			// The ACL allows some keys, and not others.
			case errors.As(err, &part) && redis.HasErrorPrefix(part.err, "NOPERM"):
				if before := s.refused[node]; before != nil {
					part.keys += before.keys
				}
				s.refused[node] = part
			case err != nil:
				return false, err
			}
			for _, l := range locks {
				if s.seen[kind+l.Key] {
					continue
				}
				s.seen[kind+l.Key] = true
				if s.waits == nil { // not before Redis has answered: a silent one would cost waitsPatience, too
					s.waits = s.lastingWaits(ctx)
				}
				l.addWaits(s.waits[l.Name])
				if !s.yield(l, nil) {
					return false, nil
				}
			}
		}
		if cursor = next; cursor == 0 {
			return true, nil
		}
		select {
		case <-time.After(min(busy, time.Second)):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

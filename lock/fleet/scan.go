package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/script"
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
		s := &scan{Reader: r, yield: yield, seen: map[string]bool{}}
		all := make([]*scanNode, len(nodes))
		for i, node := range nodes {
			all[i] = &scanNode{Client: node}
		}
		for _, pass := range []pass{
			{"hash", escape(r.prefix) + pattern, (*batch).hash, func(key string) []string { return []string{key} }},
			// Semaphores are found by the keys of their permits. So those whose permits are all free aren't found.
			{"zset", "*" + permits, (*batch).number, func(key string) []string {
				return slices.DeleteFunc(semaphoresOf(key), func(key string) bool {
					name, ok := strings.CutPrefix(key, r.prefix)
					return !ok || !matches(name)
				})
			}},
		} {
			for _, node := range all {
				if !node.failed && !s.report(ctx, node, s.each(ctx, node, pass)) {
					return
				}
			}
		}
		for _, node := range all {
			if node.refused != nil && !node.failed && !s.report(ctx, node, node.refused) {
				return
			}
		}
	}
}

// pass is how Locks reads the locks of one Redis type.
type pass struct {
	kind  string                    // the type
	match string                    // pattern of the keys to scan
	how   reads                     // reads a lock
	of    func(key string) []string // the keys of the locks that a scanned key may belong to
}

// scan is one run of Locks.
type scan struct {
	*Reader
	yield   func(Lock, error) bool
	stopped bool                        // by the caller of Locks
	waits   map[string][]waitgraph.Wait // by the name of the awaited lock; nil: not read yet
	seen    map[string]bool             // type and key of each lock yielded: SCAN may return a key more than once
}

// scanNode is a node that is scanned.
type scanNode struct {
	*redis.Client
	failed  bool          // its error was reported
	refused *refusedError // keys that the user may not read; nil: none
}

// report yields the error of a node, if there is one. It reports whether to continue.
func (s *scan) report(ctx context.Context, node *scanNode, err error) bool {
	if err == nil {
		return !s.stopped
	}
	node.failed = true
	return s.yield(Lock{}, atNode(node.Client, err)) && ctx.Err() == nil
}

// semaphoresOf returns the keys of the semaphores whose permits may be at a key: "x" and "{x}" have the same permits
// key.
func semaphoresOf(key string) []string {
	outer := strings.TrimSuffix(key, permits)
	inner := strings.TrimSuffix(strings.TrimPrefix(outer, "{"), "}")
	return slices.DeleteFunc(slices.Compact([]string{inner, outer}), func(of string) bool {
		return script.PermitsKey(of) != key
	})
}

// each scans a node for keys of a pass, and yields the locks that they belong to.
func (s *scan) each(ctx context.Context, node *scanNode, pass pass) error {
	var cursor uint64
	for {
		began := time.Now()
		keys, next, err := node.ScanType(ctx, cursor, pass.match, scanCount, pass.kind).Result()
		if err != nil {
			return err
		}
		busy := time.Since(began)
		var fresh []string
		for _, key := range keys {
			for _, key := range pass.of(key) {
				if !s.seen[pass.kind+key] {
					fresh = append(fresh, key)
				}
			}
		}
		for some := range slices.Chunk(fresh, readCount) {
			began = time.Now()
			locks, err := s.read(ctx, node.Client, some, false, pass.how)
			busy += time.Since(began)
			var part *refusedError
			switch {
			// The ACL allows some keys, and not others.
			case errors.As(err, &part) && redis.HasErrorPrefix(part.err, "NOPERM"):
				if node.refused != nil {
					part.keys += node.refused.keys
				}
				node.refused = part
			case err != nil:
				return err
			}
			if s.add(ctx, pass.kind, locks); s.stopped {
				return nil
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
		select {
		case <-time.After(min(busy, time.Second)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// add yields locks.
func (s *scan) add(ctx context.Context, kind string, locks []Lock) {
	for _, l := range locks {
		if s.seen[kind+l.Key] {
			continue
		}
		s.seen[kind+l.Key] = true
		if s.waits == nil { // not before Redis has answered: a silent one would cost waitsPatience, too
			s.waits = s.lastingWaits(ctx)
		}
		l.addWaits(s.waits[l.Name])
		if s.stopped = !s.yield(l, nil); s.stopped {
			return
		}
	}
}

// Package tracking reports watched entries that are missing or will expire early. It uses CLIENT TRACKING of Redis.
//
// A server reports the next change of a key that was read over a tracked connection, and then forgets the key. So a key
// is read when an entry is added, after each change, and after a reconnect. A read shows whether the watched entries
// are still in the key, and for how long. The user of this package decides what to do about a missing entry.
package tracking

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/telemetry"
)

// Backend is the part of backend.Redis that Trackers need.
type Backend interface {
	Node(key string) string
	Moved(ctx context.Context)
	Timeout() time.Duration
	Dedicated(
		ctx context.Context, node string, onConnect func(context.Context, *redis.Conn) error,
	) (*redis.Client, context.Context, error)
}

// Config is what Trackers need. All fields are required.
type Config struct {
	Backend  Backend
	Recorder *telemetry.Recorder
	// Verify is called with entries that are missing, or (only in a hash) will expire before their deadline. The slice
	// may be empty.
	Verify func([]Watched)
	// Refused is called once at most, when a server refuses to track keys.
	Refused func(error)
	// Crowded is called once at most, when a server keeps reporting keys that haven't changed.
	Crowded func()
}

// Key is a key of Redis that has entries.
type Key struct {
	Name   string
	Sorted bool // it is a sorted set; otherwise a hash
}

// Watched is an entry of a key: an owner of a lock. Its methods must not call Trackers.
type Watched interface {
	// StoredOwner returns the field or member of the key.
	StoredOwner() string
	// Deadline returns the time until which the process relies on the entry.
	Deadline() time.Time
}

// Trackers watch keys, with one nodeTracker per node that has keys. They are safe for concurrent use.
type Trackers struct {
	cfg     Config
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	refused sync.Once
	crowded sync.Once

	mu    sync.Mutex // held while Watched.Deadline is called
	keys  map[string]*watchedKey
	nodes map[string]*nodeTracker
}

// watchedKey is a key with its entries: several if it belongs to a semaphore with leases, or to readers.
type watchedKey struct {
	Key
	entries []Watched
	node    *nodeTracker
	expiry  time.Time // when the hash expires, by the last check over this connection; zero: there was none
}

// New returns Trackers. They open no connection before the first Watch.
func New(cfg Config) *Trackers {
	t := &Trackers{cfg: cfg, keys: make(map[string]*watchedKey), nodes: make(map[string]*nodeTracker)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Watch watches an entry until Unwatch.
func (t *Trackers) Watch(key Key, e Watched) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return
	}
	k := t.keys[key.Name]
	if k == nil {
		k = &watchedKey{Key: key}
		t.keys[key.Name] = k
	}
	k.entries = append(k.entries, e)
	t.assign(k)
	k.node.request(k, k.node.added)
}

// Unwatch stops watching an entry. It does nothing for an entry that isn't watched.
func (t *Trackers) Unwatch(key string, e Watched) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.keys[key]
	if k == nil {
		return
	}
	if i := slices.Index(k.entries, e); i >= 0 {
		k.entries = slices.Delete(k.entries, i, i+1)
	}
	if len(k.entries) == 0 {
		delete(t.keys, key)
		k.node.drop(k)
	}
}

// Close stops watching, and waits until all connections are closed. Trackers may be nil.
func (t *Trackers) Close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.cancel()
	t.mu.Unlock()
	t.running.Wait()
}

// assign gives a key to the tracker of the node where it lives now. If that isn't known, a key that has a tracker stays
// with it. mu must be held.
func (t *Trackers) assign(k *watchedKey) {
	node := t.cfg.Backend.Node(k.Name)
	if k.node != nil && (k.node.name == node || node == "") {
		return
	}
	if k.node != nil {
		k.node.drop(k)
	}
	if k.node = t.nodes[node]; k.node == nil {
		k.node = &nodeTracker{
			trackers: t, name: node, added: make(chan struct{}, 1), changed: make(chan struct{}, 1),
			due: make(map[*watchedKey]struct{}),
		}
		t.nodes[node] = k.node
		t.running.Go(k.node.run)
	}
	k.node.keys++
}

// resume prepares a tracker for a new connection: each of its keys must be read again, by the tracker of the node where
// it lives now. If no key is left, or after Close, it removes the tracker and reports false.
func (t *Trackers) resume(n *nodeTracker) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.keys {
		if k.node == n {
			k.expiry = time.Time{}
			t.assign(k)
			k.node.request(k, k.node.changed)
		}
	}
	if n.keys > 0 && t.ctx.Err() == nil {
		return true
	}
	delete(t.nodes, n.name)
	return false
}

func (t *Trackers) hasKeys(n *nodeTracker) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.keys > 0
}

// invalidate requests checks of a tracker's keys: of those with the given names, or of all keys if all is true.
func (t *Trackers) invalidate(n *nodeTracker, names []string, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if all {
		names = slices.Collect(maps.Keys(t.keys))
	}
	for _, name := range names {
		if k := t.keys[name]; k != nil && k.node == n {
			n.request(k, n.changed)
		}
	}
}

// nextChecks returns checks of some of the tracker's due keys. Keys that live elsewhere now go to the tracker there.
func (t *Trackers) nextChecks(n *nodeTracker) (checks []*keyCheck) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range n.due {
		if len(checks) == maxKeysPerCall {
			break
		}
		delete(n.due, k)
		if t.assign(k); k.node == n {
			checks = append(checks, newKeyCheck(k))
		} else {
			k.node.request(k, k.node.changed)
		}
	}
	return checks
}

func (t *Trackers) count(commands int) {
	for range commands {
		t.cfg.Recorder.Command(telemetry.PurposeSubscribe)
	}
}

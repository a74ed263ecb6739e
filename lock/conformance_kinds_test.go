package lock_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// The conformance suite runs for every kind of lock that gives a Lease. Another kind is one entry here. What has none, an UnleasedSemaphore and a
// Latch, has a suite of its own: conformance_numbers_test.go.

// subject is a lock under test.
type subject interface {
	lock.Locker
	Inspect(ctx context.Context) (lock.Holder, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

// kindOfLock is what the suite has to know of a kind.
type kindOfLock struct {
	name string // lockdog.kind
	make func(c *lock.Client, name string, opts ...lock.LockOption) subject
	// rival makes the lock of a name that can't be held beside this kind's; nil: one of this kind.
	rival func(c *lock.Client, name string, opts ...lock.LockOption) subject

	// hold has somebody hold the lock, as Redisson writes it; nil: as a field of a hash.
	hold func(r raw, key, owner, count string, lease time.Duration)
	// holders says who holds it, and how often; nil: it is a hash that has them as fields.
	holders func(r raw, key string) map[string]string
	// left is what is left of the lease, ms; -2: nobody has one; nil: the key's own time.
	left func(r raw, key string) int64
	// lose takes it from whoever holds it; nil: its key is deleted.
	lose func(r raw, key string)
	// keeps says which keys it has though nobody holds it, or asked for it; nil: none.
	keeps func(key string) bool
	// title is what a lease of a lock is called; nil: the lock's name.
	title func(name string) string
	// member is what stands for an owner in Redis; nil: its name.
	member func(owner string) string

	// ending is the suffix of this kind's owners in Redis, and theirs that of the owners that hold makes.
	ending, theirs string

	silent bool // nobody is told who holds it
	shared bool // several may hold it at a time
	quorum bool // it is held at several servers
	but    map[string]string
}

// why returns why the kind doesn't have a behaviour of the suite, "" if it has it. A key of but that ends in a slash is
// for all behaviours that start with it.
func (k kindOfLock) why(behaviour string) string {
	if why := k.but[behaviour]; why != "" {
		return why
	}
	head, _, _ := strings.Cut(behaviour, "/")
	return k.but[head+"/"]
}

// against makes the lock of a name that can't be held beside this kind's.
func (k kindOfLock) against(c *lock.Client, name string, opts ...lock.LockOption) subject {
	if k.rival != nil {
		return k.rival(c, name, opts...)
	}
	return k.make(c, name, opts...)
}

var mutexes = kindOfLock{
	name: "mutex",
	make: func(c *lock.Client, name string, opts ...lock.LockOption) subject { return c.Mutex(name, opts...) },
}

// allKinds are those that the suite runs for, on all servers. A Quorum is beside them: it has servers of its own.
var allKinds = []kindOfLock{
	mutexes,
	{
		name: "fair",
		make: func(c *lock.Client, name string, opts ...lock.LockOption) subject { return c.FairMutex(name, opts...) },
		but: map[string]string{
			"Lock/hands over": "the next may be another client's",
		},
	},
	{
		name: "write",
		make: writers, hold: holdRW,
		ending: ":write", theirs: ":write",
	},
	{
		name: "read",
		make: func(c *lock.Client, name string, opts ...lock.LockOption) subject {
			m := c.RWMutex(name, opts...)
			return readSide{m.RLocker(), m}
		},
		rival: writers, hold: holdRW,
		theirs: ":write", shared: true,
		but: map[string]string{
			"Lock/first come, first served": "readers come in together",
			"Lock/starves no other client":  "readers come in together",
			"Lock/excludes":                 "readers come in together",
			"Leases and Recent":             "whom a reader waits for is of another kind",
		},
	},
	{
		name: "semaphore",
		make: onePermit, hold: holdPermit, holders: permitHolders, left: permitLeft, lose: losePermit, member: permitMember,
		keeps:  func(key string) bool { return !strings.Contains(key, "timeout") && !strings.Contains(key, "fence") },
		silent: true,
		but: map[string]string{
			"Lock/hands over":                      "nothing is handed over",
			"Inspect/":                             "nobody is told who has a permit",
			"ForceUnlock/":                         "nobody ends another's lease",
			"lost/taken":                           "what was lost may have been lost to nobody",
			"lost/Release finds out":               "what was lost may have been lost to nobody",
			"re-entry/ErrDeadlock":                 "each Lock is for another permit",
			"re-entry/join":                        "each Lock is for another permit",
			"re-entry/the inner ctx ends":          "each Lock is for another permit",
			"re-entry/the outer ctx ends":          "each Lock is for another permit",
			"re-entry/the outer is released first": "each Lock is for another permit",
			"re-entry/loss ends all":               "each Lock is for another permit",
			"re-entry/through another lock":        "each Lock is for another permit",
			"re-entry/through WithLifetime":        "each Lock is for another permit",
			"Do/ctx and lease":                     "each Lock is for another permit",
			"bad input/a key of another type":      "number and leases are two keys: TestForeignKeyIsNoLock",
		},
	},
	{
		name: "multi",
		make: func(c *lock.Client, name string, opts ...lock.LockOption) subject {
			return oneOf{c.Multi([]string{name}, opts...), c.Mutex(name, opts...)}
		},
	},
}

// pairs is a Multi of two names. A rival holds the second one, so a waiter of this kind holds the first while it waits.
// pairs isn't in allKinds, because some behaviours need all of its keys in one slot.
var pairs = kindOfLock{
	name: "multi of two",
	make: func(c *lock.Client, name string, opts ...lock.LockOption) subject {
		return oneOf{c.Multi([]string{"-" + name, name}, opts...), c.Mutex(name, opts...)}
	},
	rival: func(c *lock.Client, name string, opts ...lock.LockOption) subject { return c.Mutex(name, opts...) },
	title: func(name string) string { return "-" + name + "," + name },
	but: map[string]string{
		"TryLock/free":                    "it has an owner for each name: TestMultiTakesAllOrNone",
		"Lock/hands over":                 "it has an owner for each name: TestMultiHandsOver",
		"Inspect/held":                    "it has an owner for each name",
		"ForceUnlock/tells the holder":    "it has an owner for each name: TestMultiInspectAndForceUnlock",
		"names/group":                     "Leases has an entry for each name: TestMultiWaitsInOrder",
		"Leases and Recent":               "Leases has an entry for each name: TestMultiWaitsInOrder",
		"Close/ctx ends with leases left": "a lock for each name is left",
		"re-entry/loss ends all":          "its other name is held until the release: TestWholeIsJoined",
	},
}

// quorums are locks at three servers. Its world makes them, of three clients each.
var quorums = kindOfLock{
	name:   "quorum",
	quorum: true,
	but: map[string]string{
		"TryLock/free":        "it has an owner at each node: TestQuorum",
		"names/group":         "each node's client tells of its own grant",
		"fixed/never renewed": "each node's client tells of its own grant",
		"Leases and Recent":   "each node's client tells of its own grant",
		"Lock/hands over":     "nothing is handed over",
		"Inspect/":            "that is for the Mutexes at its nodes",
		"ForceUnlock/":        "that is for the Mutexes at its nodes",
		"Close/":              "its clients are closed one by one: TestQuorumClose",
	},
}

func writers(c *lock.Client, name string, opts ...lock.LockOption) subject {
	return c.RWMutex(name, opts...)
}

func holdRW(r raw, key, owner, count string, lease time.Duration) {
	r.setString(beside(key, owner+":rwlock_timeout:1"), "1")
	r.hset(key, owner, count, lease) // first: between the two a renewal may look
	mode := "read"
	if strings.HasSuffix(owner, ":write") {
		mode = "write"
	}
	r.hset(key, "mode", mode, 0)
}

// readSide is the read side of an RWMutex.
type readSide struct {
	lock.Locker
	m *lock.RWMutex
}

func (r readSide) Do(ctx context.Context, fn func(context.Context, *lock.Lease) error) error {
	return r.m.RDo(ctx, fn)
}

func (r readSide) TryDo(ctx context.Context, fn func(context.Context, *lock.Lease) error) error {
	return r.m.TryRDo(ctx, fn)
}
func (r readSide) Inspect(ctx context.Context) (lock.Holder, error) { return r.m.Inspect(ctx) }
func (r readSide) ForceUnlock(ctx context.Context) (bool, error)    { return r.m.ForceUnlock(ctx) }

// semaphoreOfOne is a Semaphore with one permit. Its other calls err as a lock's do.
type semaphoreOfOne struct{ *lock.Semaphore }

func onePermit(c *lock.Client, name string, opts ...lock.LockOption) subject {
	p := c.Semaphore(name, opts...)
	_, _ = p.TrySetPermits(context.Background(), 1) // what is wrong with it the first use says, too
	return semaphoreOfOne{p}
}

func (s semaphoreOfOne) Inspect(ctx context.Context) (lock.Holder, error) {
	_, err := s.Available(ctx)
	return lock.Holder{}, err
}

func (s semaphoreOfOne) ForceUnlock(ctx context.Context) (bool, error) {
	return s.TrySetPermits(ctx, 1)
}

// beside names what Redisson has in a key's slot.
func beside(key, suffix string) string {
	if strings.Contains(key, "{") {
		return key + ":" + suffix
	}
	return "{" + key + "}:" + suffix
}

// timeouts is where the permits of a semaphore are that are taken.
func timeouts(key string) string { return beside(key, "timeout") }

func holdPermit(r raw, key, owner, _ string, lease time.Duration) {
	ms := lease.Milliseconds()
	if lease == 0 {
		ms = 1e13 // Redisson's for ever
	}
	r.eval(`local time = redis.call('time')
		redis.call('set', KEYS[1], 0)
		redis.call('zadd', KEYS[2], string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]), ARGV[2])
		return 1`, []string{key, timeouts(key)}, ms, (owner + strings.Repeat(".", 16))[:16])
}

func permitHolders(r raw, key string) map[string]string {
	held := make(map[string]string)
	members, _ := r.eval(`return redis.call('zrange', KEYS[1], 0, -1)`, []string{timeouts(key)}).([]any)
	for _, member := range members {
		held[member.(string)] = "1"
	}
	return held
}

func permitLeft(r raw, key string) int64 {
	left, _ := r.eval(`local last = redis.call('zrange', KEYS[1], -1, -1, 'withscores')[2]
		local time = redis.call('time')
		return last and math.floor(last - time[1] * 1000 - time[2] / 1000) or -2`, []string{timeouts(key)}).(int64)
	return left
}

func losePermit(r raw, key string) {
	r.eval(`redis.call('del', KEYS[2])
		redis.call('set', KEYS[1], 1)
		return 1`, []string{key, timeouts(key)})
}

// permitMember is what Redisson would take for the permit: see permitID.
func permitMember(owner string) string {
	_, grant, _ := strings.Cut(owner, ":")
	random, seq, _ := strings.Cut(grant, "-")
	head, _ := hex.DecodeString(random)
	n, _ := strconv.ParseUint(seq, 10, 64)
	return string(binary.BigEndian.AppendUint64(head, n))
}

// oneOf is a Multi together with a Mutex of one of its names. Inspect and ForceUnlock are the Mutex's.
type oneOf struct {
	*lock.Multi
	mutex *lock.Mutex
}

func (o oneOf) Inspect(ctx context.Context) (lock.Holder, error) { return o.mutex.Inspect(ctx) }
func (o oneOf) ForceUnlock(ctx context.Context) (bool, error)    { return o.mutex.ForceUnlock(ctx) }

// atNodes is a lock of a Quorum. Its other calls are those of the Mutex at the first node.
type atNodes struct {
	*lock.QuorumMutex
	first *lock.Mutex
}

func (a atNodes) Inspect(ctx context.Context) (lock.Holder, error) { return a.first.Inspect(ctx) }
func (a atNodes) ForceUnlock(ctx context.Context) (bool, error)    { return a.first.ForceUnlock(ctx) }

// An exception that names no behaviour excuses nothing.
func TestExceptionsNameBehaviours(t *testing.T) {
	t.Parallel()
	known := make(map[string]bool)
	for _, theme := range themes {
		for _, b := range theme.table {
			known[b.name] = true
			head, _, _ := strings.Cut(b.name, "/")
			known[head+"/"] = true
		}
	}
	for _, k := range append([]kindOfLock{quorums, pairs}, allKinds...) {
		for name := range k.but {
			if !known[name] {
				t.Errorf("%s: there is no behaviour %q", k.name, name)
			}
		}
	}
}

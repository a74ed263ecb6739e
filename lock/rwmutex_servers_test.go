package lock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What servers do to read-write locks.

// Among many readers in the hash, one that is alive keeps a writer out. If none is alive, the lock is free.
func TestRWManyReadersInRedis(t *testing.T) {
	t.Parallel()
	sp := redistest.Shared(t)
	r := rwRigOf(t, sp, sp.Prefix())
	c := r.client()
	var readers []*lock.Lease
	for range 70 {
		readers = append(readers, try(t, c.RWMutex("job", lock.WithFixedLease(far/2)).RLocker()))
	}
	lasting := try(t, c.RWMutex("job").RLocker())
	heldBy(t, refused(t, c.RWMutex("job")), readers[0]) // the first that Redis came upon
	free(t, readers[0])
	r.within(r.key(), far/2, far) // though it didn't look at all of them
	if h, err := c.RWMutex("job").Inspect(r.ctx()); err != nil || h.Readers != 70 || h.Owner != lasting.Owner() {
		t.Errorf("%+v, %v", h, err)
	}
	freeAll(t, readers[1:])

	crowd, gone := []any{"mode", "read"}, []string(nil)
	for i := range 600 { // so many that Redis keeps them in no order
		gone = append(gone, fmt.Sprint("gone:0123456789abcdef-", i))
		crowd = append(crowd, gone[i], 1)
	}
	eventually(t, patience, func() bool { // where Redis comes upon the one that lives among the first, another has to do
		r.must(r.rdb.HSet(r.ctx(), r.key(), crowd...))
		if page, _ := r.rdb.HScan(r.ctx(), r.key(), 0, "", 10).Val(); !slices.Contains(page, lasting.Owner()) {
			return true
		}
		r.must(r.rdb.HDel(r.ctx(), r.key(), gone...))
		free(t, lasting)
		lasting = try(t, c.RWMutex("job").RLocker())
		return false
	})
	heldBy(t, refused(t, c.RWMutex("job")), lasting)
	r.holds("read", lasting)
	r.must(r.rdb.HSet(r.ctx(), r.key(), crowd...))
	next := begin(r.ctx(), r.client().RWMutex("job"))
	r.enlisted(1)
	r.must(r.rdb.HSet(r.ctx(), r.key(), crowd...))
	free(t, lasting)
	free(t, granted(t, next))
	r.nothing()
}

// While the slot moves nobody can take or release the lock, and is told so; who holds it keeps it; who waits gets it when
// the slot has moved.
func TestRWSlotMoves(t *testing.T) {
	t.Parallel()
	cl := redistest.StartCluster(t, 0)
	open := func() redis.UniversalClient { return redistest.Open(t, cl.Universal()) }
	r, s := &rwRig{t, open(), open, "{moving}"}, newScope(t)
	client := func() *lock.Client {
		return s.open(t, open(), lock.WithKeyPrefix(r.prefix), lock.WithLease(lock.DefaultLease))
	}
	a, b := client(), client()
	rd, other, held := try(t, a.RWMutex("job").RLocker()), try(t, b.RWMutex("job").RLocker()), try(t, a.RWMutex("held"))
	key := func(suffix string) string { return r.key() + ":" + suffix }
	writer := begin(r.ctx(), b.RWMutex("job"))
	eventually(t, patience, func() bool { return r.rdb.ZCard(r.ctx(), key("lockdog_writers")).Val() == 1 })
	r.must(r.rdb.Set(r.ctx(), key("lockdog_turn"), 1, 0)) // as after a writer

	slot := cl.Slot(t, r.prefix)
	counter := "{moving}lockdog:fence:{" + hashslot.Tag(slot) + "}"
	m := cl.Migrate(t, slot, otherNode(t, cl, slot))
	for _, part := range [][]string{
		{r.prefix + "none"},
		{r.prefix + "held", r.key()}, // locks without their marks, which come later
		{counter, key("lockdog_writers"), key("lockdog_turn"), key(rd.Owner() + ":rwlock_timeout:1")}, // all but the mark of the other
	} {
		m.MoveKeys(t, part...)
		for _, lk := range []lock.Locker{a.RWMutex("job"), b.RWMutex("job").RLocker(), a.RWMutex("fresh").RLocker()} {
			_, err := lk.TryLock(r.ctx())
			if err == nil || !strings.Contains(err.Error(), "TRYAGAIN") {
				t.Fatalf("while the slot moves: %v", err)
			}
		}
	}
	for _, l := range []*lock.Lease{rd, other, held} {
		haveLook(t, r.rdb, l.Owner())
	}
	eventually(t, 2*patience, func() bool { // a renewal must not make anew what has yet to come
		return s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=error") >= 3
	})
	freed := make(chan error, 1)
	go func() { freed <- rd.Release(context.Background()) }()
	always(t, 50*time.Millisecond, func() bool { return len(freed) == 0 })
	m.Finish(t)
	if err := await(t, "Release", freed); err != nil {
		t.Fatal(err)
	}
	r.holds("read", other)
	free(t, other)
	free(t, granted(t, writer))
	before := held.Deadline()
	haveLook(t, r.rdb, held.Owner())
	renewedPast(t, held, before)
	free(t, held)
}

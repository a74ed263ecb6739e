package fleet_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
)

// full is for `make nightly`: more locks.
var full = os.Getenv("LOCKDOG_FULL") != ""

func TestMain(m *testing.M) { redistest.Main(m) }

// patience is for what happens at once, on a machine that hardly lets us run.
const patience = 2 * time.Minute

// uuid is that of a Redisson client.
const uuid = "0f0e0d0c-0102-0304-0506-0708090a0b0c"

// rig is a corner of Redis, and what reads its locks.
type rig struct {
	t      *testing.T
	rdb    redis.UniversalClient
	prefix string
	reader *fleet.Reader
}

func newRig(t *testing.T) *rig {
	t.Helper()
	space := redistest.Shared(t)
	return rigOf(t, space.Client(t), space.Prefix())
}

// newFakeRig is in a bubble.
func newFakeRig(t *testing.T) *rig {
	t.Helper()
	return rigOf(t, redistest.StartFake(t).Client(t), "p:")
}

// onFake runs a test over a fake, in a bubble, beside others.
func onFake(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newFakeRig(t)) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func rigOf(t *testing.T, rdb redis.UniversalClient, prefix string) *rig {
	t.Helper()
	reader, err := fleet.New(rdb, prefix)
	must(t, err)
	return &rig{t, rdb, prefix, reader}
}

// client is a client that takes locks. It is closed when the test ends.
func (r *rig) client(id string, opts ...lock.Option) *lock.Client {
	r.t.Helper()
	c, err := lock.New(r.rdb, append([]lock.Option{lock.WithClientID(id), lock.WithKeyPrefix(r.prefix), lock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	must(r.t, err)
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			r.t.Errorf("close client %s: %v", id, err)
		}
	})
	return c
}

// take takes a lock until the test ends.
func (r *rig) take(l lock.Locker) *lock.Lease {
	r.t.Helper()
	return r.takeCtx(r.t.Context(), l)
}

func (r *rig) takeCtx(ctx context.Context, l lock.Locker) *lock.Lease {
	r.t.Helper()
	lease, err := l.TryLock(ctx)
	must(r.t, err)
	r.t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// wait has somebody wait for a lock until the test ends.
func (r *rig) wait(ctx context.Context, l lock.Locker) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if lease, err := l.Lock(ctx); err == nil {
			_ = lease.Release(context.Background())
		}
	}()
	r.t.Cleanup(func() { cancel(); <-done })
}

func (r *rig) look(name string) fleet.Lock {
	r.t.Helper()
	l, err := r.reader.Look(r.t.Context(), name)
	must(r.t, err)
	return l
}

// summary is a lock in short: "rwmutex read, held 3, waiting 1, available 0". Who holds it and waits for it are named, Most at most.
func (r *rig) summary(l fleet.Lock) string {
	r.t.Helper()
	holders := min(l.Held, fleet.Most)
	if l.Kind == fleet.Semaphore {
		holders = 0
	}
	if len(l.Holders) != holders || len(l.Waiters) != min(l.Waiting, fleet.Most) {
		r.t.Errorf("%d holders and %d waiters are named: %+v", len(l.Holders), len(l.Waiters), l)
	}
	kind := strings.TrimSpace(fmt.Sprint(l.Kind, " ", l.Mode))
	return fmt.Sprintf("%s, held %d, waiting %d, available %d", kind, l.Held, l.Waiting, l.Available)
}

// wantLock looks at a lock, of which this is to be the summary.
func (r *rig) wantLock(name, summary string) fleet.Lock {
	r.t.Helper()
	l := r.look(name)
	if got := r.summary(l); got != summary || l.Name != name || l.Key != r.prefix+name {
		r.t.Errorf("%q: %s, want %s: %+v", name, got, summary, l)
	}
	return l
}

// lookUntil looks until a lock has so many waiters.
func (r *rig) lookUntil(name string, waiting int) (l fleet.Lock) {
	r.t.Helper()
	eventually(r.t, func() error {
		if l = r.look(name); l.Waiting != waiting {
			return fmt.Errorf("want %d waiters: %+v", waiting, l)
		}
		return nil
	})
	return l
}

func eventually(t *testing.T, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// list is what Locks yields, without an error.
func (r *rig) list(pattern string) []fleet.Lock {
	r.t.Helper()
	locks, errs := all(r.t.Context(), r.reader, pattern)
	for _, err := range errs {
		r.t.Errorf("Locks(%q): %v", pattern, err)
	}
	return locks
}

func all(ctx context.Context, reader *fleet.Reader, pattern string) (locks []fleet.Lock, errs []error) {
	for l, err := range reader.Locks(ctx, pattern) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		locks = append(locks, l)
	}
	return locks, errs
}

// names are the names of locks, sorted.
func names(locks []fleet.Lock) []string {
	list := []string{}
	for _, l := range locks {
		list = append(list, l.Name)
	}
	slices.Sort(list)
	return list
}

// wantList checks which locks Locks yields.
func (r *rig) wantList(pattern string, want ...string) {
	r.t.Helper()
	slices.Sort(want)
	if got := names(r.list(pattern)); !slices.Equal(got, want) {
		r.t.Errorf("Locks(%q): %q, want %q", pattern, got, want)
	}
}

// do sends commands to Redis, each a text of words; "@" in a word stands for the prefix.
func (r *rig) do(commands ...string) {
	r.t.Helper()
	for _, text := range commands {
		var args []any
		for word := range strings.FieldsSeq(text) {
			args = append(args, strings.ReplaceAll(word, "@", r.prefix))
		}
		if err := r.rdb.Do(r.t.Context(), args...).Err(); err != nil {
			r.t.Fatalf("%s: %v", text, err)
		}
	}
}

// now is the server's time in ms.
func (r *rig) now() int64 {
	r.t.Helper()
	now, err := r.rdb.Time(r.t.Context()).Result()
	must(r.t, err)
	return now.UnixMilli()
}

// owner is a name that lockdog would give to a lease.
func owner(client string, n int) string { return fmt.Sprintf("%s:0123456789abcdef-%d", client, n) }

func within(d, low, high time.Duration) bool { return low <= d && d <= high }

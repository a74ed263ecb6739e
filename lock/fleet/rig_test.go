package fleet_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
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

func rigOf(t *testing.T, rdb redis.UniversalClient, prefix string) *rig {
	t.Helper()
	reader, err := fleet.New(rdb, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, rdb, prefix, reader}
}

// client is a client that takes locks. It is closed when the test ends.
func (r *rig) client(id string, opts ...lock.Option) *lock.Client {
	r.t.Helper()
	c, err := lock.New(r.rdb, append([]lock.Option{lock.WithClientID(id), lock.WithKeyPrefix(r.prefix), lock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
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
	if err != nil {
		r.t.Fatal(err)
	}
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
	if err != nil {
		r.t.Fatalf("Look(%q): %v", name, err)
	}
	return l
}

// lookUntil looks until a lock is as wanted.
func (r *rig) lookUntil(name, what string, is func(fleet.Lock) bool) fleet.Lock {
	r.t.Helper()
	var l fleet.Lock
	eventually(r.t, func() error {
		if l = r.look(name); !is(l) {
			return fmt.Errorf("%s: %+v", what, l)
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
	if err != nil {
		r.t.Fatal(err)
	}
	return now.UnixMilli()
}

// owner is a name that lockdog would give to a lease.
func owner(client string, n int) string { return fmt.Sprintf("%s:0123456789abcdef-%d", client, n) }

func within(d, low, high time.Duration) bool { return low <= d && d <= high }

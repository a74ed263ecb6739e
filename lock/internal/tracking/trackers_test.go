package tracking

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

const patience = 30 * time.Second

// entry is a Watched with a fixed deadline.
type entry struct {
	member   string
	deadline time.Time
}

func (e *entry) StoredOwner() string { return e.member }
func (e *entry) Deadline() time.Time { return e.deadline }

// start returns Trackers, and the entries that they want verified.
func start(t *testing.T, b Backend, refused func(error), crowded func()) (*Trackers, <-chan Watched) {
	t.Helper()
	rec, err := telemetry.NewRecorder(telemetry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	verify := make(chan Watched, 2000)
	tr := New(Config{Backend: b, Recorder: rec, Refused: refused, Crowded: crowded, Verify: func(suspects []Watched) {
		for _, e := range suspects {
			verify <- e
		}
	}})
	t.Cleanup(func() {
		tr.Close()
		rec.Close()
	})
	return tr, verify
}

// onRedis returns Trackers of a server.
func onRedis(t *testing.T, rdb *redis.Client, crowded func()) (*Trackers, <-chan Watched) {
	t.Helper()
	b, err := backend.NewRedis(rdb, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return start(t, b, func(err error) { t.Errorf("refused: %v", err) }, crowded)
}

// neverCrowded is for Trackers of few keys.
func neverCrowded(t *testing.T) func() {
	return func() { t.Error("told that the server tracks no more keys") }
}

// An entry that isn't watched any more is forgotten, also while others of the same key are watched.
func TestTrackers_Unwatch(t *testing.T) {
	t.Parallel()
	tr, _ := onRedis(t, redistest.Shared(t).Client(t), neverCrowded(t))
	prefix := redistest.Shared(t).Prefix()
	mutex, first, second, stranger := &entry{member: "m"}, &entry{member: "1"}, &entry{member: "2"}, &entry{member: "1"}
	tr.Watch(Key{Name: prefix + "mutex"}, mutex)
	tr.Watch(Key{Name: prefix + "rw"}, first)
	tr.Watch(Key{Name: prefix + "rw"}, second)
	for _, step := range []struct {
		unwatched     string
		entry         *entry
		keys, readers int
	}{
		{"none", stranger, 2, 2},
		{"rw", stranger, 2, 2},
		{"mutex", mutex, 1, 2},
		{"mutex", mutex, 1, 2},
		{"rw", first, 1, 1},
		{"rw", second, 0, 0},
		{"rw", second, 0, 0},
	} {
		tr.Unwatch(prefix+step.unwatched, step.entry)
		tr.mu.Lock()
		assigned, readers := 0, 0
		for _, n := range tr.nodes {
			assigned += n.keys
		}
		if k := tr.keys[prefix+"rw"]; k != nil {
			readers = len(k.entries)
		}
		if len(tr.keys) != step.keys || assigned != step.keys || readers != step.readers {
			t.Errorf("after Unwatch(%s): %d keys, %d assigned to nodes, %d readers; want %d, %d", step.unwatched, len(tr.keys), assigned, readers, step.keys, step.readers)
		}
		tr.mu.Unlock()
	}
}

// Entries that are missing, or that expire too soon, are to be verified, and no others.
func TestTrackers_Verify(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Shared(t).Client(t), redistest.Shared(t).Prefix()
	tr, verify := onRedis(t, rdb, neverCrowded(t))
	hash, set := prefix+"hash", prefix+"set"
	redo := func() {
		t.Helper()
		_, err := rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Del(t.Context(), hash, set)
			p.HSet(t.Context(), hash, "1", 1, "2", 1)
			p.PExpire(t.Context(), hash, time.Hour)
			p.ZAdd(t.Context(), set, redis.Z{Member: "3"}, redis.Z{Member: "4"})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	redo()
	entries := make([]*entry, 4)
	for i, key := range []Key{{Name: hash}, {Name: hash}, {Name: set, Sorted: true}, {Name: set, Sorted: true}} {
		entries[i] = &entry{member: string(rune('1' + i)), deadline: time.Now().Add(time.Hour / 2)}
		tr.Watch(key, entries[i])
	}
	for _, step := range []struct {
		name   string
		change func(ctx context.Context) error
		want   []*entry
	}{
		{"HDEL", func(ctx context.Context) error { return rdb.HDel(ctx, hash, "2").Err() }, entries[1:2]},
		{"PEXPIRE", func(ctx context.Context) error { return rdb.PExpire(ctx, hash, 30*time.Second).Err() }, entries[:2]},
		{"DEL", func(ctx context.Context) error { return rdb.Del(ctx, hash).Err() }, entries[:2]},
		{"ZREM", func(ctx context.Context) error { return rdb.ZRem(ctx, set, "3").Err() }, entries[2:3]},
		{"SET", func(ctx context.Context) error { return rdb.Set(ctx, set, "text", 0).Err() }, entries[2:]},
	} {
		if err := step.change(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := make(map[Watched]bool)
		for deadline := time.After(patience); len(got) < len(step.want); {
			select {
			case e := <-verify:
				got[e] = true
			case <-deadline:
				t.Fatalf("%s: %d of %d entries verified", step.name, len(got), len(step.want))
			}
		}
		for _, e := range step.want {
			if !got[e] {
				t.Errorf("%s: %s not verified", step.name, e.member)
			}
		}
		redo()
		settle(t, tr, verify)
	}
}

// settle waits until nothing is to be verified any more: changes are reported in their order.
func settle(t *testing.T, tr *Trackers, verify <-chan Watched) {
	t.Helper()
	last := &entry{member: "none"}
	key := Key{Name: redistest.Shared(t).Prefix() + "none"}
	tr.Watch(key, last)
	defer tr.Unwatch(key.Name, last)
	deadline := time.After(patience)
	for {
		select {
		case e := <-verify:
			if e == last {
				return
			}
		case <-deadline:
			t.Fatal("the check of a missing key never came")
		}
	}
}

// unreachable is a Backend that can't connect.
type unreachable struct {
	err   error
	dials atomic.Int64
}

func (b *unreachable) Node(string) string     { return "node" }
func (b *unreachable) Moved(context.Context)  {}
func (b *unreachable) Timeout() time.Duration { return time.Second }

func (b *unreachable) Dedicated(context.Context, string, func(context.Context, *redis.Conn) error) (*redis.Client, context.Context, error) {
	b.dials.Add(1)
	return nil, nil, b.err
}

// A server that refuses is asked again each minute or so, and reported once; one that isn't reached is asked each second or so. Without keys
// nothing is asked.
func TestTrackers_Retry(t *testing.T) {
	for _, tt := range []struct {
		err          error
		least, most  int64 // connections in the first hour
		wantRefusals int64
	}{
		{redisfail.ReplyError("NOPERM this user has no permissions to run the 'client|tracking' command"), 40, 121, 1},
		{errors.New("connection refused"), 3600, 4 * 3600, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &unreachable{err: tt.err}
			var refusals atomic.Int64
			tr, _ := start(t, b, func(error) { refusals.Add(1) }, neverCrowded(t))
			e := &entry{member: "1"}
			tr.Watch(Key{Name: "key"}, e)
			time.Sleep(time.Hour)
			if n := b.dials.Load(); n < tt.least || n > tt.most || refusals.Load() != tt.wantRefusals {
				t.Errorf("%v: %d connections, %d refusals", tt.err, n, refusals.Load())
			}
			tr.Unwatch("key", e)
			time.Sleep(2 * time.Minute)
			n := b.dials.Load()
			time.Sleep(time.Hour)
			if b.dials.Load() != n {
				t.Errorf("%v: connects without keys", tt.err)
			}
		})
	}
}

// Closed Trackers watch nothing.
func TestTrackers_Close(t *testing.T) {
	t.Parallel()
	b := &unreachable{err: errors.New("connection refused")}
	tr, _ := start(t, b, nil, neverCrowded(t))
	tr.Close()
	tr.Watch(Key{Name: "key"}, &entry{})
	if len(tr.keys) != 0 || b.dials.Load() != 0 {
		t.Error("watches a key after Close")
	}
	(*Trackers)(nil).Close()
}

func TestKeyCheck(t *testing.T) {
	t.Parallel()
	now := time.Now()
	deadlines := []time.Time{now.Add(10 * time.Second), now.Add(20 * time.Second)}
	first, second := &entry{"1", deadlines[0]}, &entry{"2", deadlines[1]}
	tests := map[string]struct {
		members []any
		err     error
		ttl     time.Duration
		sorted  bool
		want    []Watched
		wantErr bool
	}{
		"both there":              {members: []any{"1", "1"}, ttl: 20 * time.Second},
		"one missing":             {members: []any{nil, "1"}, ttl: 20 * time.Second, want: []Watched{first}},
		"all missing":             {members: []any{nil, nil}, ttl: -2, want: []Watched{first, second}},
		"no expiry":               {members: []any{"1", "1"}, ttl: -1},
		"shorter than one":        {members: []any{"1", "1"}, ttl: 19 * time.Second, want: []Watched{second}},
		"shorter than both":       {members: []any{"1", "1"}, ttl: 0, want: []Watched{first, second}},
		"a sorted set":            {members: []any{"0", nil}, sorted: true, want: []Watched{second}},
		"another type":            {err: redisfail.ReplyError("WRONGTYPE Operation against a key"), want: []Watched{first, second}},
		"refused":                 {err: redisfail.ReplyError("NOPERM no permissions"), wantErr: true},
		"too few values":          {members: []any{"1"}, wantErr: true},
		"too many values, sorted": {members: []any{"1", "1", "1"}, sorted: true, wantErr: true},
	}
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	for name, tt := range tests {
		k := newKeyCheck(&watchedKey{Key: Key{Name: "key", Sorted: tt.sorted}, entries: []Watched{first, second}})
		pipe := rdb.Pipeline()
		k.send(t.Context(), pipe)
		if want := map[bool]int{false: 2, true: 1}[tt.sorted]; pipe.Len() != want {
			t.Errorf("%s: %d commands", name, pipe.Len())
		}
		if k.values.SetVal(tt.members); tt.err != nil {
			k.values.SetErr(tt.err)
		}
		if k.ttl != nil {
			k.ttl.SetVal(tt.ttl)
		}
		got, err := k.suspects(now)
		if !slices.Equal(got, tt.want) || err != nil != tt.wantErr {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

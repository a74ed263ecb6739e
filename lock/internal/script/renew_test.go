package script

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// Leases with the same holding and length share a section if they are added one after the other.
func TestRenewArgs(t *testing.T) {
	t.Parallel()
	const permits = "v/1:0000000000000001-2"
	a := NewRenewArgs(5, 6)
	for _, l := range []struct {
		holding     Holding
		lock, owner string
		lease       int64
	}{
		{HoldsField, "a", "A", 1000},
		{HoldsField, "b", "B", 1000},
		{HoldsField, "c", "C", 2000},
		{HoldsMark, "d", "D", 2000},
		{HoldsPermit, "e", permits, 2000},
		{HoldsField, "f", "F", 2000},
	} {
		a.Add(l.holding, l.lock, l.owner, l.lease)
	}
	call := a.Call("node")
	want := []any{
		int64(5),
		"", int64(1000), 2, "a", "A", "b", "B",
		"", int64(2000), 1, "c", "C",
		"r", int64(2000), 1, "d", "D",
		"p", int64(2000), 1, "{e}:timeout", HoldsPermit.StoredOwner(permits),
		"", int64(2000), 1, "f", "F",
	}
	if !reflect.DeepEqual(call.Args, want) || len(call.Keys) != 1 || call.Keys[0] != "a" || !call.Renew || call.Node != "node" {
		t.Errorf("%+v\nshould have %v", call, want)
	}
}

// Leases that the reply doesn't list were renewed: so it must list each of the others once, and say how many those are.
func TestParseRenew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n     int
		reply []any
		want  string
	}{
		{2, []any{int64(7), int64(2)}, "1 1"},
		{3, []any{int64(7), int64(1), int64(1), int64(0), int64(3), "ERR x"}, "0 1 ERR x"},
		{3, []any{int64(7), int64(0), int64(1), int64(2), int64(2), int64(3), int64(3), int64(0)}, "2 3 0"},
		{2, []any{int64(7)}, ""},
		{2, []any{int64(7), int64(1)}, ""},                             // one is missing
		{2, []any{int64(7), int64(3)}, ""},                             // one too many
		{2, []any{int64(7), int64(1), int64(2)}, ""},                   // without its result
		{2, []any{int64(7), int64(2), int64(2), int64(0)}, ""},         // both were renewed, and one wasn't
		{2, []any{int64(7), int64(1), int64(0), int64(0)}, ""},         // they are numbered from 1 on
		{2, []any{int64(7), int64(1), int64(3), int64(0)}, ""},         // to 2
		{2, []any{int64(7), int64(1), "2", int64(0)}, ""},              // no number
		{3, []any{int64(7), "1", int64(1), int64(0), int64(2), 0}, ""}, // nor this
		{2, []any{int64(7), int64(0), int64(2), int64(0), int64(2), int64(0)}, ""},
		{2, []any{int64(7), int64(0), int64(2), int64(0), int64(1), int64(0)}, ""},
	} {
		r, err := ParseRenew(c.reply, c.n)
		if (err == nil) != (c.want != "") || err != nil && !errors.Is(err, ErrReply) {
			t.Errorf("%v: %v", c.reply, err)
		}
		if err != nil {
			continue
		}
		if got := told(r, c.n); got != c.want || r.Now != 7 {
			t.Errorf("%v read as %s at %d, want %s", c.reply, got, r.Now, c.want)
		}
	}
}

// told words what became of n leases.
func told(r RenewReply, n int) string {
	var words []string
	for i := range n {
		outcome, err := r.At(i)
		if err != nil {
			words = append(words, err.Error())
		} else {
			words = append(words, strconv.Itoa(int(outcome)))
		}
	}
	return strings.Join(words, " ")
}

// renewRig has leases of each kind in each state. All are for an hour.
type renewRig struct {
	*testing.T
	rdb    *redis.Client
	leases []rigLease
}

type rigLease struct {
	what    string
	holding Holding
	key     string
	lease   time.Duration
	want    string // what the renewal says, or how the error's text begins
	late    string // the same of a call that comes too late
	writes  bool   // in time, or to find out whether this is a replica
}

const rigOwner = "vm/1:0123456789abcdef-3"

func newRenewRig(t *testing.T) *renewRig {
	t.Helper()
	r := &renewRig{T: t, rdb: redistest.Start(t).Client(t), leases: []rigLease{
		{"held", HoldsField, "held", 2 * time.Hour, "1", "3", true},
		{"of a lock that is gone", HoldsField, "gone", 2 * time.Hour, "0", "0", true},
		{"to read", HoldsMark, "read", 2 * time.Hour, "1", "3", true},
		{"of a key of another type", HoldsField, "alien", 2 * time.Hour, "WRONGTYPE", "WRONGTYPE", false},
		{"a permit", HoldsPermit, "permits", 2 * time.Hour, "1", "3", true},
		{"longer", HoldsField, "longer", 3 * time.Hour, "1", "3", true},
		{"of a lock that is taken", HoldsField, "taken", 2 * time.Hour, "2", "2", true},
		{"to read while another's is longer", HoldsMark, "shared", 2 * time.Hour, "1", "3", true},
		{"to read without its mark", HoldsMark, "unmarked", 2 * time.Hour, "ERR the mark", "3", true},
		{"to read what is taken", HoldsMark, "taken", 2 * time.Hour, "2", "2", true},
		{"a permit that ran out", HoldsPermit, "stale", 2 * time.Hour, "0", "0", true},
		{"a permit that is gone", HoldsPermit, "gone", 2 * time.Hour, "0", "0", true},
		{"a permit of a key of another type", HoldsPermit, "alien", 2 * time.Hour, "WRONGTYPE", "WRONGTYPE", false},
		{"shorter", HoldsField, "shorter", 90 * time.Minute, "1", "3", true},
		{"held, the last", HoldsField, "last", 2 * time.Hour, "1", "3", true},
	}}
	ctx, member := t.Context(), HoldsPermit.StoredOwner(rigOwner)
	_, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range []string{"held", "read", "longer", "shared", "unmarked", "shorter", "last"} {
			p.HSet(ctx, key, rigOwner, 1, "@lockdog", 12)
			p.PExpire(ctx, key, time.Hour)
		}
		p.HSet(ctx, "taken", "another", 1)
		p.PExpire(ctx, "taken", time.Hour)
		p.PExpire(ctx, "shared", 5*time.Hour)
		for _, key := range []string{"read", "shared"} {
			p.Set(ctx, mark(key), 1, time.Hour)
		}
		p.Set(ctx, "alien", "text", time.Hour)
		p.Set(ctx, PermitsKey("alien"), "text", time.Hour)
		end := float64(time.Now().Add(time.Hour).UnixMilli())
		p.ZAdd(ctx, PermitsKey("permits"), redis.Z{Score: end, Member: member}, redis.Z{Score: end, Member: "another"})
		p.ZAdd(ctx, PermitsKey("stale"), redis.Z{Score: 1000, Member: member})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mark is the key beside a read-write lock.
func mark(key string) string { return suffixed(key, rigOwner+":rwlock_timeout:1") }

// renew renews some leases by one call.
func (r *renewRig) renew(notAfter int64, leases ...rigLease) (RenewReply, error) {
	r.Helper()
	args := NewRenewArgs(notAfter, len(leases))
	for _, l := range leases {
		args.Add(l.holding, l.key, rigOwner, l.lease.Milliseconds())
	}
	call := args.Call("")
	reply, err := r.rdb.Eval(context.Background(), call.Script.Source, call.Keys, call.Args...).Result()
	if err != nil {
		return RenewReply{}, err
	}
	got, err := ParseRenew(reply, len(leases))
	if err != nil {
		r.Fatalf("%v: %v", reply, err)
	}
	return got, nil
}

// ends returns how long the keys still live and, for a sorted set, when each member's time is over; rounded to minutes.
func (r *renewRig) ends() map[string]time.Duration {
	ctx, ends := r.Context(), make(map[string]time.Duration)
	for _, key := range r.rdb.Keys(ctx, "*").Val() {
		if r.rdb.Type(ctx, key).Val() != "zset" {
			ends[key] = r.rdb.PTTL(ctx, key).Val().Round(time.Minute)
			continue
		}
		for _, z := range r.rdb.ZRangeWithScores(ctx, key, 0, -1).Val() {
			ends[fmt.Sprintf("%s %x", key, z.Member)] = max(0, time.Until(time.UnixMilli(int64(z.Score)))).Round(time.Minute)
		}
	}
	return ends
}

// Leases of all kinds and lengths share a call, and none spoils another.
func TestRenewMixedBatch(t *testing.T) {
	t.Parallel()
	for _, notAfter := range []int64{0, time.Now().Add(time.Hour).UnixMicro()} {
		r := newRenewRig(t)
		want := r.ends()
		got, err := r.renew(notAfter, r.leases...)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range r.leases {
			r.is(l.what, got, i, l.want)
		}
		for _, key := range []string{"held", "read", mark("read"), mark("shared"), "last", fmt.Sprintf("%s %x", PermitsKey("permits"), HoldsPermit.StoredOwner(rigOwner))} {
			want[key] = 2 * time.Hour
		}
		want["longer"], want["shorter"] = 3*time.Hour, 90*time.Minute
		if ends := r.ends(); !reflect.DeepEqual(ends, want) {
			t.Errorf("leases end in %v\nshould end in %v", ends, want)
		}
	}
}

// is checks what became of one lease.
func (r *renewRig) is(what string, got RenewReply, i int, want string) {
	r.Helper()
	outcome, err := got.At(i)
	said := strconv.Itoa(int(outcome))
	if err != nil {
		said = err.Error()
	}
	if !strings.HasPrefix(said, want) {
		r.Errorf("%s: %s, want %s", what, said, want)
	}
}

// What comes too late writes nothing, and yet tells what is gone or taken.
func TestRenewTooLate(t *testing.T) {
	t.Parallel()
	r := newRenewRig(t)
	before := r.ends()
	got, err := r.renew(1, r.leases...)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range r.leases {
		r.is(l.what, got, i, l.late)
	}
	if ends := r.ends(); !reflect.DeepEqual(ends, before) {
		t.Errorf("leases end in %v\nshould end in %v", ends, before)
	}
}

// A replica says nothing about a lease that may be wrong at the primary: the whole call is answered with READONLY.
func TestRenewAtReplica(t *testing.T) {
	t.Parallel()
	r := newRenewRig(t)
	if err := r.rdb.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil { // nobody is there
		t.Fatal(err)
	}
	for _, l := range r.leases {
		for _, late := range []bool{false, true} {
			notAfter, refused := int64(0), l.writes
			if late {
				notAfter, refused = 1, l.writes && l.late != "3"
			}
			got, err := r.renew(notAfter, l)
			if wrong := err == nil || !strings.HasPrefix(err.Error(), "READONLY "); refused && wrong || !refused && err != nil {
				t.Errorf("%s, too late: %v: %v, %v", l.what, late, got.results, err)
			}
		}
	}
	if _, err := r.renew(0, r.leases...); err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
		t.Errorf("all in one call: %v", err)
	}
}

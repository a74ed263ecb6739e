package renewal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// noLeases are the leases of a client that holds nothing.
type noLeases struct{}

func (noLeases) All() []*watchdog.Lease { return nil }
func (noLeases) Count() int             { return 0 }

// write writes what Redis stores of a lease.
func write(p redis.Pipeliner, t *testing.T, e Target) {
	ctx := t.Context()
	if e.Holding == script.HoldsPermit {
		p.ZAdd(ctx, e.Holding.Key(e.Key), redis.Z{Score: float64(time.Now().Add(e.Expiry).UnixMilli()), Member: e.Holding.StoredOwner(e.Owner)})
		return
	}
	p.HSet(ctx, e.Key, e.Owner, 1)
	p.PExpire(ctx, e.Key, e.Expiry)
	if e.Holding == script.HoldsMark {
		p.Set(ctx, script.MarkKey(e.Key, e.Owner), 1, e.Expiry)
	}
}

func newRenewer(t *testing.T, be *backend.Redis) (*Renewer, *telemetry.Recorder) {
	t.Helper()
	rec, err := telemetry.NewRecorder(telemetry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d := dispatch.New(dispatch.Config{Backend: be, Recorder: rec})
	t.Cleanup(d.Close)
	return New(Config{Caller: Caller{Dispatcher: d, Backend: be, Recorder: rec}, Leases: noLeases{}}), rec
}

// Leases of several kinds and lengths, which a batch has in any order, are asked for kind by kind, and each gets its own result.
func TestRenewMixedBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.StartFake(t).Client(t)
		be, err := backend.NewRedis(rdb, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = be.Close() }()
		r, rec := newRenewer(t, be)
		defer rec.Close()
		defer r.Close()

		const rounds = 3
		a := &Attempt{Node: r.cfg.Dispatcher.Node("").Name}
		var want []watchdog.Outcome
		for i := range rounds {
			for n, e := range []Target{
				{Key: "job", Expiry: time.Hour},
				{Key: "read", Expiry: time.Hour, Holding: script.HoldsMark},
				{Key: "longer", Expiry: 2 * time.Hour},
				{Key: "permits", Expiry: time.Hour, Holding: script.HoldsPermit},
			} {
				e.Key, e.Owner, e.ExpiryArg = fmt.Sprint(e.Key, ":", i), fmt.Sprintf("v/1:0000000000000001-%d", n), e.Expiry.Milliseconds()
				a.Targets, a.Results = append(a.Targets, e), append(a.Results, watchdog.Result{})
				if gone := i == 1 && e.Holding == script.HoldsField; gone { // of each length
					want = append(want, watchdog.Missing)
					continue
				}
				want = append(want, watchdog.Renewed)
				if _, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error { write(p, t, e); return nil }); err != nil {
					t.Fatal(err)
				}
			}
		}

		if call := r.cfg.request(t.Context(), a, r.cfg.leasesAtNode(a)); len(call.Args) != 1+4*3+2*len(a.Targets) {
			t.Errorf("%d arguments for %d leases of four sorts: %v", len(call.Args), len(a.Targets), call.Args)
		}
		if err := r.cfg.Renew(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		var got []watchdog.Outcome
		for _, res := range a.Results {
			got = append(got, res.Outcome)
		}
		if !slices.Equal(got, want) {
			t.Errorf("results %v, want %v: %+v", got, want, a.Results)
		}
	})
}

// While no Sentinel says which server is the primary, no answer of a server counts, also not that a key holds something else.
func TestUnknownPrimary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		rdb := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "primary", SentinelAddrs: []string{"127.0.0.1:1"},
			Dialer: func(context.Context, string, string) (net.Conn, error) { <-over; return nil, io.EOF },
		})
		be, err := backend.NewRedis(rdb, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, rec := newRenewer(t, be)
		results := []watchdog.Result{
			{Outcome: watchdog.Renewed},
			{Outcome: watchdog.Missing},
			{Outcome: watchdog.Taken},
			{Outcome: watchdog.Taken, Err: redisfail.ReplyError("WRONGTYPE")},
		}
		a := &Attempt{
			Targets: slices.Repeat([]Target{{Key: "job"}}, len(results)+1),
			Results: append(slices.Clone(results), watchdog.Result{Err: redisfail.ErrLate}),
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r.cfg.confirmNode(ctx, a) {
			t.Error("the answers count")
		}
		for i, want := range results {
			if got := a.Results[i]; got.Outcome != watchdog.Failed || !errors.Is(got.Err, backend.ErrServersUnknown) {
				t.Errorf("%+v counts as %+v", want, got)
			}
		}
		if got := a.Results[len(results)]; !errors.Is(got.Err, redisfail.ErrLate) {
			t.Errorf("a failure became %+v", got)
		}
		close(over)
		time.Sleep(time.Minute) // until go-redis has given up its dialing
		r.Close()
		rec.Close()
		_ = errors.Join(be.Close(), rdb.Close())
	})
}

// What the renew script says of a lease is its result.
func TestParseResults(t *testing.T) {
	t.Parallel()
	results, now, err := parseResults([]any{
		int64(7), int64(1), int64(1), int64(0), int64(3), int64(2), int64(4), int64(3), int64(5), int64(4), int64(6), "NOPERM", int64(7), "WRONGTYPE x", int64(8), nil,
	}, 8)
	if err != nil || now != 7 {
		t.Fatalf("%d, %v", now, err)
	}
	want := []watchdog.Outcome{watchdog.Missing, watchdog.Renewed, watchdog.Taken, watchdog.Failed, watchdog.Failed, watchdog.Failed, watchdog.Taken, watchdog.Failed}
	for i, r := range results {
		if r.Outcome != want[i] || (r.Err == nil) != (i < 3) {
			t.Errorf("result %d read as %+v", i, r)
		}
	}
	if !errors.Is(results[3].Err, redisfail.ErrLate) || !errors.Is(results[4].Err, script.ErrReply) || !errors.Is(results[7].Err, script.ErrReply) {
		t.Errorf("%+v", results)
	}
}

// A server may refuse a lease with any text.
func FuzzRefusal(f *testing.F) {
	for _, s := range []string{"", "ERR", "WRONGTYPE Operation against a key", "NOPERM", "-", "ERR user_script:1: -READONLY"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		results, _, err := parseResults([]any{int64(1), int64(0), int64(1), s}, 1)
		if err != nil || results[0].Err == nil {
			t.Fatalf("%q read as %v, %v", s, results, err)
		}
		if want := redisfail.IsWrongType(redisfail.ReplyError(s)); (results[0].Outcome == watchdog.Taken) != want || !want && results[0].Outcome != watchdog.Failed {
			t.Errorf("%q read as %+v", s, results[0])
		}
		redisfail.Classify(results[0].Err)
	})
}

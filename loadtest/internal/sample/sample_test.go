package sample_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const info = "# Server\r\nredis_version:7.0.15\r\nserver_time_usec:1795252775575379\r\n\r\n" +
	"# CPU\r\nused_cpu_sys:0.5\r\nused_cpu_user:1.25\r\nused_cpu_sys_children:9\r\n\r\n" +
	"# Commandstats\r\ncmdstat_evalsha:calls=12,usec=345,usec_per_call=28.75,rejected_calls=0,failed_calls=1\r\n" +
	"cmdstat_client|setinfo:calls=4,usec=5,usec_per_call=1.25,rejected_calls=0,failed_calls=0\r\n"

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := sample.Parse(info)
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != "7.0.15" || got.At.UnixMicro() != 1795252775575379 || got.CPU != 1750*time.Millisecond {
		t.Errorf("%+v", got)
	}
	if s := got.Commands["evalsha"]; s.Calls != 12 || s.CPU != 345*time.Microsecond || got.Commands["client|setinfo"].Calls != 4 {
		t.Errorf("%+v", got.Commands)
	}
	later := got
	later.CPU = 2 * time.Second
	later.Commands = map[string]sample.Stat{"evalsha": {Calls: 15, CPU: time.Millisecond}, "client|setinfo": got.Commands["client|setinfo"], "get": {Calls: 1}}
	d := later.Since(got)
	if d.CPU != 250*time.Millisecond || len(d.Commands) != 2 || d.Commands["evalsha"] != (sample.Stat{Calls: 3, CPU: 655 * time.Microsecond}) {
		t.Errorf("%+v", d)
	}
	for _, bad := range []string{"", "redis_version:2.4\r\n", info + "cmdstat_get:calls=x,usec=1\r\n"} {
		if _, err := sample.Parse(bad); !errors.Is(err, sample.ErrOld) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestSort(t *testing.T) {
	t.Parallel()
	executed := map[string]sample.Stat{
		"evalsha": {Calls: 10}, "eval": {Calls: 1}, "ping": {Calls: 2}, "subscribe": {Calls: 1}, "hello": {Calls: 3}, "client|setinfo": {Calls: 6},
		"info": {Calls: 99}, "time": {Calls: 11}, "hexists": {Calls: 100}, "get": {Calls: 50}, "set": {Calls: 7}, "pubsub|numsub": {Calls: 1},
	}
	got := sample.Sort(executed, 40)
	if want := (sample.Commands{Scripts: 11, Received: 11 + 3 + 9 + 40, InLua: 129}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// at makes points from times in ms and counts.
func at(pairs ...int64) []sample.Point {
	var points []sample.Point
	for pair := range slices.Chunk(pairs, 2) {
		points = append(points, sample.Point{At: time.UnixMilli(pair[0]), Calls: pair[1]})
	}
	return points
}

func TestPeak(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		points []sample.Point
		want   int64
	}{
		{"nothing", nil, 0},
		{"one look", at(0, 5), 0},
		{"short", at(0, 5, 40, 8), 3},
		{"even", at(0, 0, 20, 1, 40, 2, 60, 3, 80, 4, 100, 5, 120, 6, 140, 7), 5},
		{"a burst", at(0, 0, 20, 0, 40, 7, 60, 8, 80, 8, 100, 8, 120, 8, 140, 8), 8},
		{"a burst across a border", at(0, 0, 20, 0, 40, 0, 60, 0, 80, 4, 100, 4, 120, 9, 140, 9, 160, 9, 180, 9, 200, 9), 9},
		{"a burst that is longer", at(0, 0, 50, 5, 100, 10, 150, 15, 200, 20), 10},
		{"a late look", at(0, 0, 100, 1, 300, 41), 20},
		{"a little late", at(0, 0, 21, 0, 42, 3, 63, 3, 84, 3, 105, 3, 126, 9), 9},
	}
	for _, test := range tests {
		if got := sample.Peak(test.points); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

func TestSeries(t *testing.T) {
	t.Parallel()
	points := at(1000, 10, 1050, 12, 1090, 13, 1110, 14, 1150, 20, 1250, 30, 1300, 30)
	got := sample.Series(points, time.UnixMilli(1000), time.UnixMilli(1310))
	if want := []float64{4, 11, 5}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if between := sample.Between(points, time.UnixMilli(1050), time.UnixMilli(1110)); len(between) != 3 {
		t.Errorf("%v", between)
	}
}

// TestOwnCost: what the sampler does to a server is not in its figures.
func TestOwnCost(t *testing.T) {
	t.Parallel()
	ctx, srv := t.Context(), redistest.Start(t)
	rdb := srv.Client(t)
	if err := rdb.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	s, err := sample.New(context.Background(), []string{srv.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	before, err := s.Look(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const calls = 7
	for range calls {
		if err := rdb.Eval(ctx, "redis.call('get', 'a') return redis.call('time')", nil).Err(); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(sample.Every)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for seen, looks := int64(0), int64(0); seen < calls || looks < 20; { // until the calls are in a sample, and many were taken
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d calls seen in %d looks", seen, looks)
		}
		points, err := s.Take()
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Look(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(points); n > 0 {
			seen = points[n-1].Calls
		}
		looks = info.Since(before).Commands["info"].Calls
	}
	after, err := s.Look(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d := after.Since(before)
	got := sample.Sort(d.Commands, 0)
	if want := (sample.Commands{Scripts: calls, Received: calls, InLua: 2 * calls}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// The sampler's share is by the clock, so it may be far more than all CPU time where the server waits for a CPU.
	if d.CPU > time.Second || !after.At.After(before.At) {
		t.Errorf("CPU %v, from %v to %v", d.CPU, before.At, after.At)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	if _, err := sample.New(t.Context(), []string{"127.0.0.1:1"}); err == nil {
		t.Error("no error")
	}
}

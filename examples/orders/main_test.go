package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("NO_COLOR", "1") // the tests read the log
	redistest.Main(m)
}

const (
	acquired = `lockdog_outcome="acquired"`
	ofOrders = `lockdog_group="orders"`
	ofReport = `lockdog_group="report"`
)

func TestRequestTakesTheLock(t *testing.T) {
	t.Parallel()
	s := launch(t, redistest.Start(t).Addr(), "-lease", "6s")
	first := s.change("/orders/7?work=4s")
	second := s.change("/orders/7?work=0s")
	if first.Version != 1 || second.Version != 2 || second.Token <= first.Token {
		t.Errorf("got %+v, then %+v", first, second)
	}
	if n := s.metric("lockdog_acquisitions_total", ofOrders, acquired); n != 2 {
		t.Errorf("%v acquired, want 2", n)
	}
	if n := s.metric("lockdog_renewals_total", ofOrders, `lockdog_outcome="renewed"`); n < 1 {
		t.Errorf("%v renewals within 4s of a lease of 6s", n)
	}
	for path, want := range map[string]int{
		"/orders/7?work=soon": http.StatusBadRequest, "/orders/7?work=-1s": http.StatusBadRequest,
		"/orders/7?work=24h": http.StatusBadRequest, "/orders/%7B%7D": http.StatusBadRequest, // {} is no name
		"/orders/": http.StatusNotFound,
	} {
		if code, body := s.do(http.MethodPost, path); code != want {
			t.Errorf("POST %s: %d %s, want %d", path, code, body, want)
		}
	}
	if code, body := s.do(http.MethodGet, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("GET /healthz: %d %q", code, body)
	}
}

func TestInstancesContend(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	patient := launch(t, addr, "-wait", "2m")
	hasty := launch(t, addr, "-wait", "1s")

	held := make(chan order, 1)
	go func() { held <- patient.change("/orders/1?work=8s") }()
	patient.until("the lock is held", func() bool { return patient.metric("lockdog_held", ofOrders) == 1 })
	if code, body := hasty.do(http.MethodPost, "/orders/1"); code != http.StatusConflict {
		t.Errorf("POST of a held order: %d %s", code, body)
	}
	if _, page := patient.do(http.MethodGet, "/debug/locks?format=json"); !strings.Contains(page, `"orders:1"`) {
		t.Errorf("GET /debug/locks: %s", page)
	}
	if o := <-held; o.Version != 1 {
		t.Errorf("got %+v", o)
	}

	// Read, work, write: without the lock versions would be lost.
	other := launch(t, addr, "-wait", "2m")
	const requests = 40
	var wg sync.WaitGroup
	for n := range requests {
		wg.Go(func() { []*instance{patient, other}[n%2].change("/orders/1?work=2ms") })
	}
	wg.Wait()
	if o := other.change("/orders/1?work=0s"); o.Version != requests+2 {
		t.Errorf("version %d after %d changes", o.Version, requests+2)
	}
}

// TestChaos has every third call fail: no lock is lost by that.
func TestChaos(t *testing.T) {
	t.Parallel()
	s := launch(t, redistest.Start(t).Addr(), "-lease", "15s", "-workers", "3", "-hold", "1m", "-chaos", "0.33", "-seed", "1")
	s.until("renewals fail and succeed", func() bool {
		return s.metric("lockdog_renewals_total", ofReport, `lockdog_outcome="error"`) >= 3 &&
			s.metric("lockdog_renewals_total", ofReport, `lockdog_outcome="renewed"`) >= 3
	})
	if n := s.metric("lockdog_losses_total", ofReport); n != 0 {
		t.Errorf("%v locks lost", n)
	}
	if n := s.metric("lockdog_held", ofReport); n != 3 {
		t.Errorf("%v held, want 3", n)
	}
	if log := s.logs.String(); !strings.Contains(log, "lock renewal failed") || !strings.Contains(log, "lock renewal recovered") {
		t.Error("the log says nothing of failures and recoveries")
	}
}

// TestWorkersTakeTurns hands a report from a worker of one instance to that of the other.
func TestWorkersTakeTurns(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	args := []string{"-workers", "1", "-hold", "50ms"}
	for _, s := range []*instance{launch(t, addr, args...), launch(t, addr, args...)} {
		s.until("two reports", func() bool { return s.metric("lockdog_releases_total", ofReport, `lockdog_outcome="released"`) >= 2 })
	}
}

// TestLoad has one instance send requests to another.
func TestLoad(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	target := launch(t, addr, "-work", "1ms")
	source := launch(t, addr, "-load", "200", "-peers", target.url+"/", "-seed", "1")
	target.until("requests arrive", func() bool { return target.metric("lockdog_acquisitions_total", acquired) > 50 })
	if n := source.metric("lockdog_acquisitions_total"); n != -1 {
		t.Errorf("the source of the load took %v locks itself", n)
	}
	if code := source.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestRedisAway shows that the service starts without Redis, says so to requests, and is well when Redis comes.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill(t)
	s := launch(t, server.Addr(), "-wait", "100ms")
	if code, body := s.do(http.MethodPost, "/orders/1"); code != http.StatusServiceUnavailable {
		t.Errorf("POST without Redis: %d %s", code, body)
	}
	server.Restart(t, redistest.LoseData)
	s.until("changes succeed again", func() bool {
		code, _ := s.do(http.MethodPost, "/orders/1?work=0s")
		return code == http.StatusOK
	})
}

// TestShutdown stops the service while a worker and a request hold locks.
func TestShutdown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := launch(t, server.Addr(), "-workers", "1")
	finished := make(chan order, 1)
	change := func() { finished <- s.change("/orders/1?work=2s") } // within the time that requests have
	go change()
	s.until("both locks are held", func() bool {
		select {
		case <-finished: // before we have looked
			go change()
		default:
		}
		return s.metric("lockdog_held") == 2
	})
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if o := <-finished; o.Version == 0 {
		t.Errorf("the request came to %+v", o)
	}
	keys, err := server.Client(t).Keys(context.Background(), "orders:locks:*").Result()
	if err != nil {
		t.Error(err)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "orders:locks:lockdog:fence:") {
			t.Errorf("left behind: %s", key)
		}
	}
}

// TestStaleWrite is what a token is for.
func TestStaleWrite(t *testing.T) {
	t.Parallel()
	s := store{redistest.Start(t).Client(t), "test:"}
	ctx := t.Context()
	// The 16 digits of real tokens, next to each other.
	const token = 1_764_000_000_000_000
	for _, step := range []struct {
		o    order
		want error
	}{
		{order{ID: "1", Version: 1, Token: token + 1}, nil},
		{order{ID: "1", Version: 2, Token: token}, errStale},
		{order{ID: "1", Version: 3, Token: token + 2}, nil},
	} {
		if err := s.put(ctx, step.o); !errors.Is(err, step.want) {
			t.Errorf("put %+v: %v, want %v", step.o, err, step.want)
		}
	}
	if o, err := s.get(ctx, "1"); err != nil || o.Version != 3 {
		t.Errorf("got %+v, %v", o, err)
	}
}

// TestChaosShare counts what a hook lets through, of single commands and of pipelines.
func TestChaosShare(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	rdb.AddHook(newChaos(0.25, newRand(1, streamChaos)))
	ctx := t.Context()
	const (
		calls  = 2000
		script = "return redis.call('INCR', KEYS[1])"
	)
	failed := 0
	for n := range calls {
		var cmd *redis.Cmd
		if n%2 == 0 {
			cmd = rdb.Eval(ctx, script, []string{"n"})
		} else {
			pipe := rdb.Pipeline()
			cmd = pipe.Eval(ctx, script, []string{"n"})
			_, _ = pipe.Exec(ctx)
		}
		if cmd.Err() != nil {
			failed++
		}
	}
	reached, err := rdb.Get(ctx, "n").Int() // no script
	if err != nil {
		t.Fatal(err)
	}
	if failed < calls/5 || failed > calls*3/10 {
		t.Errorf("%d of %d calls failed, want a quarter", failed, calls)
	}
	if lost := reached - (calls - failed); lost < failed*4/10 || lost > failed*6/10 {
		t.Errorf("of %d failed calls %d reached Redis, want half", failed, lost)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args string
		code int
		says string
	}{
		{"-h", 0, "-chaos SHARE"},
		{"-x", exitUsage, "-x"},
		{"now", exitUsage, `"now"`},
		{"-addr 8080", exitUsage, "host:port"},
		{"-redis localhost", exitUsage, "host:port"},
		{"-redis http://localhost:1", exitUsage, "http"},
		{"-hold 0s", exitUsage, "-hold"},
		{"-workers -1", exitUsage, "-workers"},
		{"-load NaN", exitUsage, "-load"},
		{"-chaos 1.1", exitUsage, "-chaos"},
		{"-peers localhost:8081", exitUsage, "-peers"},
		{"-otlp ftp://localhost", exitUsage, "ftp://localhost"},
		{"-lease 1ms", exitUsage, "-lease 1ms"},
		{"-trace-url jaeger:16686/{trace_id}", exitUsage, "-trace-url"},
		{"-trace-url http://localhost:16686/trace/", exitUsage, "{trace_id}"},
		{"-addr 256.0.0.1:1", exitFailed, "-addr 256.0.0.1:1"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			starting.Lock()
			defer starting.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var out, errs bytes.Buffer
			code := run(ctx, strings.Fields(test.args), &out, &errs)
			says, silent := &errs, &out
			if test.code == 0 {
				says, silent = &out, &errs
			}
			if code != test.code || !strings.Contains(says.String(), test.says) || silent.Len() > 0 {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, &out, &errs)
			}
		})
	}
}

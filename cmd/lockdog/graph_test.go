package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// record writes a wait as a client does: its nth owner waits for a lock, and carries the lease of another, its (n+1)st owner. It takes that lease, too.
func record(t *testing.T, rdb redis.UniversalClient, client string, n int, awaited, held string) {
	t.Helper()
	random := fmt.Sprintf("%016x", n)
	owner := func(n int) string { return fmt.Sprintf("%s:%s-%d", client, random, n) }
	now := time.Now()
	wait := map[string]any{"w": owner(n), "n": awaited, "k": "mutex", "s": now.Add(-time.Minute).UnixMicro() + int64(n), "t": "00-" + traceID + "-00f067aa0ba902b7-01"}
	field := owner(n)
	pipe := rdb.Pipeline()
	if held != "" {
		field = owner(n + 1)
		wait["h"] = []any{map[string]any{"n": held, "k": "mutex", "o": field, "t": 7}}
		pipe.HSet(t.Context(), held, field, 1, "@lockdog", now.Add(-2*time.Minute).UnixMicro())
		pipe.PExpire(t.Context(), held, time.Hour)
	}
	text, err := json.Marshal([]any{wait})
	if err != nil {
		t.Fatal(err)
	}
	pipe.HSet(t.Context(), "lockdog:waits:{"+random+"}", field, text)
	pipe.PExpire(t.Context(), "lockdog:waits:{"+random+"}", time.Hour) // longer than a client says: it seems to have been refreshed just now
	pipe.ZAdd(t.Context(), "lockdog:waiting", redis.Z{Score: float64(now.Add(time.Hour).UnixMilli()), Member: random})
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestGraph(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	lockdog(t, server.Addr(), nil, "graph").want(t, 0, "", "nobody has waited")
	hold(t, rdb, "report")
	record(t, rdb, "web/1", 10, "report", "mail")
	record(t, rdb, "web/2", 20, "mail", "")
	r := lockdog(t, server.Addr(), nil, "graph")
	r.want(t, 0, "report (mutex), held by holder for ", "")
	if want := "\n  web/1 waits for 1m0"; !strings.Contains(r.stdout, want) || strings.Contains(r.stdout, "DEADLOCK") {
		t.Errorf("no %q in\n%s", want, r.stdout)
	}
	for _, want := range []string{", holds mail, trace " + traceID, "\n    mail (mutex), held by web/1 for 2m0", "\n      web/2 waits for 1m0"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}

	record(t, rdb, "orders", 30, "account", "stock")
	record(t, rdb, "billing", 40, "stock", "account")
	r = lockdog(t, server.Addr(), nil, "graph", "--trace-url", "https://jaeger.test/{trace_id}")
	r.want(t, exitNo, "DEADLOCK of 2: each waits for the next one, and the last for the first\n  billing holds account and waits for stock, for 1m0", "")
	for _, want := range []string{"\n  orders holds stock and waits for account, for 1m0", "trace https://jaeger.test/" + traceID, "waits for 1m0", ", DEADLOCK, holds stock", "report (mutex)", ": see above"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	// What a pattern leaves out doesn't count.
	r = lockdog(t, server.Addr(), nil, "graph", "mai*")
	r.want(t, 0, "report (mutex)", "")
	if strings.Contains(r.stdout, "stock") {
		t.Errorf("%s", r.stdout)
	}
	lockdog(t, server.Addr(), nil, "graph", "acc*").want(t, exitNo, "DEADLOCK", "")

	var v graphView
	r = lockdog(t, server.Addr(), nil, "graph", "--json", "--trace-url", "https://jaeger.test/{trace_id}")
	r.want(t, exitNo, "", "")
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || strings.Count(r.stdout, "\n") != 1 {
		t.Fatalf("%v: %s", err, r.stdout)
	}
	if len(v.Cycles) != 1 || len(v.Cycles[0]) != 2 || len(v.Waits) != 4 || len(v.Locks) != 4 || v.More || v.Time.IsZero() {
		t.Errorf("%+v", v)
	}
	if c := v.Cycles[0][0]; c.ClientID != "billing" || c.Name != "stock" || c.Holds.Name != "account" || c.Holds.Owner == "" || c.TraceURL != "https://jaeger.test/"+traceID {
		t.Errorf("%+v", c)
	}
	for _, w := range v.Waits {
		if w.Cycle != (w.ClientID == "billing" || w.ClientID == "orders") || w.Since.IsZero() || w.Waiter == "" {
			t.Errorf("%+v", w)
		}
	}

	lockdog(t, server.Addr(), nil, "graph", "[").want(t, exitUsage, "", "has a [")

	rdb.Del(t.Context(), "lockdog:waiting")
	rdb.Set(t.Context(), "lockdog:waiting", "x", 0)
	lockdog(t, server.Addr(), nil, "graph").want(t, exitUnavailable, "", "WRONGTYPE")
}

// A lock that hundreds wait for has a line for some of them.
func TestGraphOfManyWaits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	hold(t, rdb, "busy")
	for i := range 200 {
		record(t, rdb, fmt.Sprintf("web/%d", i), 1000+i, "busy", "")
	}
	r := lockdog(t, server.Addr(), nil, "graph")
	r.want(t, 0, fmt.Sprintf("and %d more", 200-mostShown), "")
	if n := strings.Count(r.stdout, "\n"); n != mostShown+2 {
		t.Errorf("%d lines:\n%s", n, r.stdout)
	}

	// Those that hold a lock for which others wait all have lines.
	server = redistest.Start(t)
	rdb = server.Client(t)
	hold(t, rdb, "busy")
	for i := range mostShown + 1 {
		name := fmt.Sprintf("behind:%02d", i)
		record(t, rdb, fmt.Sprintf("web/%d", i), 1000+10*i, "busy", name)
		record(t, rdb, fmt.Sprintf("job/%d", i), 2000+10*i, name, "")
	}
	r = lockdog(t, server.Addr(), nil, "graph")
	r.want(t, 0, "job/20", "")
	if strings.Contains(r.stdout, "more") {
		t.Errorf("none is left out, but:\n%s", r.stdout)
	}
}

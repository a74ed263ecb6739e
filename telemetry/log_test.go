package telemetry_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// TestBurst: ten names, then a count; of each kind of record by itself.
func TestBurst(t *testing.T) {
	b := newBench(t)
	burst := b.NewBurst()
	bad := failed()
	bad.Err, bad.ErrType, bad.Burst = errBoom, telemetry.ErrorNetwork, burst
	good := renewed(time.Now())
	good.Burst = burst
	var holds []*telemetry.Hold
	for range 25 {
		h := b.grant()
		h.Renewal(bad)
		holds = append(holds, h)
	}
	for range 2 {
		b.grant().Lost(telemetry.LossTaken, nil, burst)
	}
	for _, h := range holds[:11] {
		h.Renewal(good)
	}
	burst.Flush()
	burst.Flush() // nothing more to say
	log := b.records.buf.String()
	for l, want := range map[telemetry.Log]int{
		telemetry.LogFail: 10, telemetry.LogMoreFail: 1, telemetry.LogLost: 2, telemetry.LogMoreLost: 0,
		telemetry.LogBack: 10, telemetry.LogMoreBack: 1,
	} {
		if got := strings.Count(log, `"msg":"`+l.Message+`"`); got != want {
			t.Errorf("%q: %d records, want %d", l.Message, got, want)
		}
	}
	wantIn(t, "more", b.record(telemetry.LogMoreFail), map[string]any{"count": 15.0})

	// The next batch has ten names of its own.
	holds[24].Renewal(bad)
	spans := b.named("renew orders")
	last := spans[len(spans)-1].SpanContext
	wantIn(t, "failed", b.record(telemetry.LogFail), map[string]any{
		"name": "orders:42", "group": "orders", "owner": "app:1", "token": 7.0, "error": "boom", "error_type": "network",
		"attempt": 1.0, "remaining": 20.0, "node": "127.0.0.1:6379", "trace_id": last.TraceID().String(), "span_id": last.SpanID().String(),
	})
}

// The default logger is looked up for each record, so that one set later is used.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	r, err := telemetry.NewRecorder(telemetry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := r.Lock("orders:42", "mutex", "", 0)
	h := granted(r, &l)
	defer h.End(telemetry.EndLost)
	var buf bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&buf, nil)))
	h.Lost(telemetry.LossTaken, nil, nil)
	if !strings.Contains(buf.String(), `msg="lock lost" name=orders:42`) || strings.Contains(buf.String(), "trace_id") {
		t.Errorf("log %q", buf.String())
	}
}

// TestWindow: leases that end by themselves are bounded too, by the second.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		cut := func(n int) {
			for range n {
				b.grant().Canceled(telemetry.CancelContext, nil)
			}
		}
		count := func(l telemetry.Log) int {
			b.records.mu.Lock()
			defer b.records.mu.Unlock()
			return strings.Count(b.records.buf.String(), `"msg":"`+l.Message+`"`)
		}
		cut(25)
		if n, more := count(telemetry.LogEnd), count(telemetry.LogMoreEnd); n != 10 || more != 0 {
			t.Errorf("%d by name, %d counts", n, more)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if more := count(telemetry.LogMoreEnd); more != 1 { // although nothing follows
			t.Errorf("%d counts when the second is over", more)
		}
		for range 14 { // of Multis, or found by releases: no batch bounds these
			b.grant().Lost(telemetry.LossMissing, nil, nil)
		}
		if n := count(telemetry.LogLost); n != 10 {
			t.Errorf("%d losses by name", n)
		}
		cut(12)
		for range 30 {
			b.grant().Warn(time.Hour)
		}
		if n, held := count(telemetry.LogEnd), count(telemetry.LogHeld); n != 20 || held != 10 {
			t.Errorf("%d and %d by name", n, held)
		}
		for i := range 17 {
			b.grant().Canceled([]telemetry.CancelReason{telemetry.CancelMaxHold, telemetry.CancelHeartbeat}[i%2], nil)
		}
		for range 25 {
			_, a := b.StartAcquire(b.caller, &b.lock, ttl)
			a.Deadlock("all of it", false)
			a.Fail(telemetry.AcquireTimeout, nil)
		}
		if cut, deadlocks := count(telemetry.LogCut), count(telemetry.LogDeadlock); cut != 10 || deadlocks != 10 {
			t.Errorf("%d cut off and %d deadlocks by name", cut, deadlocks)
		}
		b.Close()
		counts := b.records.buf.String()
		for l, want := range map[telemetry.Log][]int{
			telemetry.LogMoreEnd: {15, 2}, telemetry.LogMoreLost: {4}, telemetry.LogMoreHeld: {20}, telemetry.LogMoreCut: {7}, telemetry.LogMoreDeadlock: {15},
		} {
			for _, n := range want {
				if !strings.Contains(counts, fmt.Sprintf(`"level":%q,"msg":%q,"count":%d}`, l.Level, l.Message, n)) {
					t.Errorf("no %q with count %d", l.Message, n)
				}
			}
			if n := count(l); n != len(want) {
				t.Errorf("%q: %d records, want %d", l.Message, n, len(want))
			}
		}
	})
}

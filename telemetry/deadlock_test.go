package telemetry_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/telemetry"
)

// A deadlock is counted in the group of the lock that is waited for, is on the span of the acquire while that is open, and in the log.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	const cycle = "orders:42 held by stock:1, which waits for stock:7 held by orders:1"
	b := newBench(t)
	ctx, a := b.StartAcquire(b.caller, &b.lock, ttl)
	b.want(0, telemetry.MetricDeadlocks, "lockdog.group=orders") // so that an alert on increase() sees the first
	a.WaitStart()
	a.Deadlock(cycle, true)
	b.want(1, telemetry.MetricDeadlocks, "lockdog.group=orders")
	span := trace.SpanContextFromContext(ctx)
	wantIn(t, "record", b.record(telemetry.LogDeadlock), map[string]any{
		"name": "orders:42", "group": "orders", "cycle": cycle, "broken": true,
		"trace_id": span.TraceID().String(), "span_id": span.SpanID().String(),
	})
	// There at once, though the acquire's span isn't.
	mark := b.one("deadlock orders")
	wantIn(t, "deadlock", attrs(mark), map[attribute.Key]string{
		"lockdog.deadlock.cycle": cycle, "lockdog.deadlock.broken": "true", "lockdog.name": "orders:42",
	})
	if mark.Parent.SpanID() != span.SpanID() || mark.Status.Code != codes.Unset {
		t.Errorf("the span deadlock is below %v, status %v", mark.Parent, mark.Status)
	}
	if n := len(b.named("acquire orders")); n != 0 {
		t.Errorf("%d acquires have ended", n)
	}
	a.Fail(telemetry.AcquireError, errBoom)
	a.Deadlock(cycle, true) // comes too late
	b.want(1, telemetry.MetricDeadlocks, "lockdog.group=orders")
	events := b.one("acquire orders").Events
	if len(events) != 1 || events[0].Name != "deadlock" {
		t.Fatalf("events %v", events)
	}
	want := attribute.NewSet(attribute.String("lockdog.deadlock.cycle", cycle), attribute.Bool("lockdog.deadlock.broken", true))
	if got := attribute.NewSet(events[0].Attributes...); !got.Equals(&want) {
		t.Errorf("the event has %v", events[0].Attributes)
	}
}

// A member of a Multi waits by itself: its wait counts.
func TestDeadlockOfMember(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	composite, member := b.lock.Composite("orders:42, stock:7", time.Now), b.lock.Member(func() string { return "node:1" })
	_, a := b.StartAcquire(b.caller, &composite, ttl)
	_, m := b.StartAcquire(b.caller, &member, ttl)
	m.Deadlock("all of it", false)
	m.Fail(telemetry.AcquireTimeout, nil)
	a.Fail(telemetry.AcquireTimeout, nil)
	b.want(1, telemetry.MetricDeadlocks, "lockdog.group=orders")
	if got := attrs(b.one("deadlock member orders")); got[telemetry.KeyNode] != "node:1" {
		t.Errorf("the member's span deadlock has %v", got)
	}
	if n := len(b.one("acquire member orders").Events); n != 1 {
		t.Errorf("the member's span has %d events", n)
	}
	if n := len(b.one("acquire orders").Events); n != 0 {
		t.Errorf("the span of the composite has %d events", n)
	}
}

// The cycle quotes what is in Redis: it is cut to a bearable length, and is UTF-8.
func TestDeadlockHostile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, a := b.StartAcquire(b.caller, &b.lock, ttl)
	a.Deadlock(strings.Repeat("\xff-", 1<<20), false)
	a.Fail(telemetry.AcquireTimeout, nil)
	logged, _ := b.record(telemetry.LogDeadlock)["cycle"].(string)
	for where, cycle := range map[string]string{
		"log": logged, "event": b.one("acquire orders").Events[0].Attributes[0].Value.AsString(),
	} {
		if len(cycle) > 8192+len("…") || len(cycle) < 8000 || !utf8.ValidString(cycle) || !strings.HasSuffix(cycle, "…") {
			t.Errorf("%s: a cycle of %d bytes", where, len(cycle))
		}
	}
}

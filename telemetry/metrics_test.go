package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/telemetry/internal/story"
)

// A group's counters are there at 0 with its first acquire, and not before. No 0 has an exemplar: that acquire is none of what they count.
func TestZeroed(t *testing.T) {
	b := newBench(t)
	if len(b.metrics()) != 0 {
		t.Fatal("a lock that nobody acquired shows in the metrics")
	}
	_, a := b.StartAcquire(b.caller, &b.lock, ttl)
	for _, m := range []telemetry.Metric{
		telemetry.MetricAcquisitions, telemetry.MetricWakeups, telemetry.MetricTakeovers, telemetry.MetricRenewals,
		telemetry.MetricLosses, telemetry.MetricCancellations, telemetry.MetricReleases,
	} {
		for _, v := range m.Labels[1].Values {
			label := fmt.Sprintf("%s=%s", m.Labels[1].Key, v)
			if m.Labels[1].Key < telemetry.KeyGroup {
				b.want(0, m, label, "lockdog.group=orders")
			} else {
				b.want(0, m, "lockdog.group=orders", label)
			}
		}
	}
	for _, m := range []telemetry.Metric{
		telemetry.MetricLate, telemetry.MetricDeadlocks, telemetry.MetricForced, telemetry.MetricHeld, telemetry.MetricWaiting, telemetry.MetricOldestAge, telemetry.MetricFailing,
		telemetry.MetricWorstUtilization,
	} {
		b.want(0, m, "lockdog.group=orders")
	}
	for name, m := range b.metrics() {
		for key, p := range points(m) {
			if p.value == 0 && p.exemplars > 0 {
				t.Errorf("%s{%s} is 0, with an exemplar", name, key)
			}
		}
	}
	a.Fail(telemetry.AcquireHeld, nil)
	b.want(1, telemetry.MetricAcquisitions, "lockdog.group=orders", "lockdog.outcome=held")
}

// A View that drops the durations of acquires doesn't drop those of releases.
func TestDroppedDuration(t *testing.T) {
	b := &bench{t: t, reader: sdkmetric.NewManualReader()}
	b.mp = sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader), sdkmetric.WithView(sdkmetric.NewView(
		sdkmetric.Instrument{Name: telemetry.MetricAcquireDuration.Name},
		sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}},
	)))
	r, err := telemetry.NewRecorder(telemetry.Config{MeterProvider: b.mp, TracerProvider: tracenoop.NewTracerProvider()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := r.Lock("orders:42", "mutex", "", 0)
	one(t.Context(), r, &l)
	b.wants(telemetry.MetricReleaseDuration)(1)
	b.want(1, telemetry.MetricBatchDuration, "lockdog.outcome=ok")
	if _, ok := b.value(telemetry.MetricAcquireDuration, "lockdog.group=orders", "lockdog.outcome=acquired"); ok {
		t.Error("the View is ignored")
	}
}

func TestHeldAndWaiting(t *testing.T) {
	b := newBench(t)
	waiting, held := b.wants(telemetry.MetricWaiting), b.wants(telemetry.MetricHeld)
	_, a := b.StartAcquire(b.caller, &b.lock, ttl)
	a.WaitStart()
	a.WaitStart() // waits already
	waiting(1)
	a.WaitEnd()
	a.WaitEnd()
	waiting(0)
	a.WaitStart()
	var h telemetry.Hold
	a.Grant(&h, "app:1", 7)
	waiting(0)
	held(1)
	h.Canceled(telemetry.CancelContext, nil)
	held(1) // its holder winds down
	h.End(telemetry.EndCanceled)
	h.End(telemetry.EndReleased) // ended already
	held(0)
	b.wants(telemetry.MetricHoldDuration)(1)
}

func TestLateAndUtilization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		late := b.wants(telemetry.MetricLate)
		h := b.grant()
		at := func(o telemetry.Outcome, used float64) {
			ev := renewed(time.Now())
			ev.Outcome, ev.Elapsed = o, time.Duration(used*float64(ttl))
			h.Renewal(ev)
		}
		at(telemetry.RenewalRenewed, 0.8) // not over it
		late(0)
		at(telemetry.RenewalRenewed, 0.81)
		late(1)
		at(telemetry.RenewalError, 0.9)
		late(2)
		at(telemetry.RenewalMissing, 0.95)
		late(3)
		h.Lost(telemetry.LossMissing, nil, nil) // that renewal was counted
		h.Lost(telemetry.LossTaken, nil, nil)
		h.Lost(telemetry.LossExpired, nil, nil) // nothing renews a fixed lease
		late(3)
		if p := points(b.metrics()[telemetry.MetricUtilization.Name])["lockdog.group=orders"]; p.value != 4 || math.Abs(p.sum-3.46) > 1e-9 {
			t.Errorf("utilization %+v", p)
		}

		// Losses at the deadline have no renewal to count.
		h = b.grant()
		time.Sleep(10 * time.Second)
		at(telemetry.RenewalRenewed, 0.33)
		time.Sleep(29700 * time.Millisecond)
		h.Lost(telemetry.LossUnreachable, nil, nil)
		late(4)
		h = b.grant()
		time.Sleep(45 * time.Second)
		h.Lost(telemetry.LossStalled, nil, nil)
		late(5)
		if p := points(b.metrics()[telemetry.MetricUtilization.Name])["lockdog.group=orders"]; p.value != 7 || math.Abs(p.sum-(3.46+0.33+0.99+1.5)) > 1e-9 {
			t.Errorf("utilization %+v", p)
		}
	})
}

func TestOldestAndFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var holds []*telemetry.Hold
		for range 4 {
			holds = append(holds, b.grant())
			time.Sleep(time.Second)
		}
		oldest := b.wants(telemetry.MetricOldestAge)
		failing := b.wants(telemetry.MetricFailing)
		oldest(4)
		holds[1].End(telemetry.EndReleased) // from the middle
		oldest(4)
		holds[0].End(telemetry.EndReleased) // from the front
		oldest(2)
		holds[3].End(telemetry.EndReleased) // from the back
		holds[3] = b.grant()
		oldest(2)

		bad, good := failed(), renewed(time.Now())
		failing(0)
		holds[2].Renewal(bad)
		holds[2].Renewal(bad)
		holds[3].Renewal(bad)
		failing(2)
		holds[2].Renewal(good)
		failing(1)
		holds[2].Renewal(bad)
		holds[3].Lost(telemetry.LossUnreachable, nil, nil)
		failing(1) // the lost one is not live
		holds[3].Renewal(bad)
		failing(1)
		holds[2].End(telemetry.EndReleased)
		failing(0)
		holds[2].Renewal(bad)
		failing(0)
		holds[3].End(telemetry.EndLost)
		oldest(0)
	})
}

// Only leases that are renewed count: nothing is at stake when the others run out.
func TestWorstUtilization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		worst := b.wants(telemetry.MetricWorstUtilization)
		first := b.grant()
		time.Sleep(ttl / 4)
		second := b.grant()
		time.Sleep(ttl / 4)
		worst(0.5)
		first.Renewal(renewed(time.Now()))
		worst(0.25)
		time.Sleep(ttl / 4)
		second.Renewal(failed())
		worst(0.5)
		b.StartRelease(b.caller, second)
		worst(0.25)
		first.Canceled(telemetry.CancelContext, nil)
		worst(0)

		lost, fixed := b.grant(), b.grant()
		fixed.NotRenewed()
		time.Sleep(ttl / 2)
		worst(0.5)
		lost.Lost(telemetry.LossUnreachable, nil, nil)
		worst(0)
		ended := b.grant()
		time.Sleep(ttl)
		worst(1)
		ended.End(telemetry.EndReleased)
		worst(0)
	})
}

func TestDefaultGroup(t *testing.T) {
	b := newBench(t)
	for name, want := range map[string]string{
		"orders:42": "orders", "orders:eu:42": "orders", "orders": "default", ":42": "default", "": "default",
		"{orders:42}": "orders", "{orders}:42": "orders", "{42}": "default", "a\xffb:1": "a\uFFFDb",
	} {
		l := b.Lock(name, "mutex", "", 0)
		if got := l.Group(); got != want {
			t.Errorf("%q is in group %q, want %q", name, got, want)
		}
	}
	if l := b.Lock("orders:42", "mutex", "billing\xff", 0); l.Group() != "billing\uFFFD" {
		t.Errorf("group %q", l.Group())
	}
}

// TestCardinality: however many names and groups, and however many clients, no instrument has more than 1,000
// attribute sets.
func TestCardinality(t *testing.T) {
	b := newBench(t, withSampler(sdktrace.NeverSample()))
	recorders := []*telemetry.Recorder{b.Recorder}
	for range 5 {
		r, err := telemetry.NewRecorder(telemetry.Config{TracerProvider: b.tp, MeterProvider: b.mp, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		recorders = append(recorders, r)
	}
	ctx := context.Background()
	quick(ctx, b.Recorder, &b.lock) // the first group of the first client
	for i, r := range recorders {
		groups := map[string]bool{}
		for g := range 70 {
			l := r.Lock(strconv.Itoa(g), "mutex", fmt.Sprintf("client%d-group%d", i, g), telemetry.RenewalSpansOff)
			groups[l.Group()] = true
			quick(ctx, r, &l)
		}
		other := r.Lock("x", "mutex", otherGroup, 0)
		if other.Group() != otherGroup {
			t.Errorf("group %s", other.Group())
		}
		want := 51
		switch {
		case i == 0:
			want = 50 // besides orders
		case i >= 3:
			want = 1 // the provider's 150 are used up
		}
		if len(groups) != want || !groups[otherGroup] {
			t.Errorf("client %d has %d groups, want %d", i, len(groups), want)
		}
		if l := r.Lock(fmt.Sprintf("client%d-group0:again", i), "mutex", "", 0); i < 3 && l.Group() == otherGroup {
			t.Error("a known group is forgotten")
		}
	}
	most := 0
	for name, m := range b.metrics() {
		n := len(points(m))
		most = max(most, n)
		if n > 1000 {
			t.Errorf("%s has %d attribute sets", name, n)
		}
		for _, p := range points(m) {
			if _, over := p.attrs.Value("otel.metric.overflow"); over {
				t.Errorf("%s overflowed", name)
			}
			if v, ok := p.attrs.Value(telemetry.KeyName); ok {
				t.Errorf("%s carries the name %s", name, v.AsString())
			}
		}
	}
	if most != 151*6 {
		t.Errorf("at most %d sets, want 151 groups with 6 outcomes", most)
	}
}

// quick emits each label value of each grouped metric once.
func quick(ctx context.Context, r *telemetry.Recorder, l *telemetry.Lock) {
	for _, o := range story.Each[telemetry.Outcome](telemetry.MetricAcquisitions, 1) {
		_, a := r.StartAcquire(ctx, l, ttl)
		a.Fail(o, nil)
	}
	for _, end := range []telemetry.HoldEnd{telemetry.EndReleased, telemetry.EndLost, telemetry.EndCanceled, telemetry.EndClosed} {
		_, a := r.StartAcquire(ctx, l, ttl)
		for _, s := range story.Each[telemetry.WakeupSource](telemetry.MetricWakeups, 1) {
			a.Wakeup(s)
		}
		a.Takeover(telemetry.TakeoverExpired)
		a.Takeover(telemetry.TakeoverMessageMissed)
		var h telemetry.Hold
		a.Grant(&h, "app:1", 7)
		for _, o := range story.Each[telemetry.Outcome](telemetry.MetricRenewals, 1) {
			ev := renewed(time.Now())
			ev.Outcome = o
			h.Renewal(ev)
		}
		for _, o := range story.Each[telemetry.Outcome](telemetry.MetricReleases, 1) {
			_, rel := r.StartRelease(ctx, &h)
			rel.End(o, false, nil)
		}
		h.End(end)
	}
}

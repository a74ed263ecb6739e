package telemetry_test

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/telemetry"
)

// TestTwoRecorders: two clients on one provider add up, and neither hides the other.
func TestTwoRecorders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := [2]telemetry.State{}
		b := newBench(t, withState(func() telemetry.State { return state[0] }))
		second, err := telemetry.NewRecorder(telemetry.Config{
			TracerProvider: b.tp, MeterProvider: b.mp, State: func() telemetry.State { return state[1] },
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		grant := func(r *telemetry.Recorder, name string) *telemetry.Hold {
			l := r.Lock(name, "mutex", "", 0)
			return granted(r, &l)
		}
		bad := failed()
		old := grant(b.Recorder, "orders:1")
		old.Renewal(bad)
		time.Sleep(time.Minute)
		young := grant(second, "orders:2")
		young.Renewal(bad)
		grant(second, "users:2")
		time.Sleep(time.Second)

		b.want(61, telemetry.MetricOldestAge, "lockdog.group=orders")
		b.want(1, telemetry.MetricOldestAge, "lockdog.group=users")
		b.want(2, telemetry.MetricFailing, "lockdog.group=orders")
		b.want(61/ttl.Seconds(), telemetry.MetricWorstUtilization, "lockdog.group=orders")
		b.want(2, telemetry.MetricHeld, "lockdog.group=orders")
		absent := func(m telemetry.Metric) {
			t.Helper()
			if v, ok := b.value(m); ok {
				t.Errorf("%s = %v, want none", m.Name, v)
			}
		}
		absent(telemetry.MetricTickAge)
		absent(telemetry.MetricPubSubConnected)
		state = [2]telemetry.State{
			{Ticking: true, TickAge: 3 * time.Second, PubSubWanted: true, PubSubConnected: true},
			{Ticking: true, TickAge: time.Second, PubSubWanted: true, PubSubConnected: true},
		}
		b.want(3, telemetry.MetricTickAge)
		b.want(1, telemetry.MetricPubSubConnected)
		state[1] = telemetry.State{TickAge: time.Hour, PubSubWanted: true}
		b.want(3, telemetry.MetricTickAge)
		b.want(0, telemetry.MetricPubSubConnected)
		state[0].PubSubConnected, state[1].PubSubConnected = false, true
		b.want(0, telemetry.MetricPubSubConnected)
		state[0].PubSubConnected, state[1].PubSubWanted = true, false
		b.want(1, telemetry.MetricPubSubConnected)

		b.Close()
		b.Close()
		b.want(1, telemetry.MetricOldestAge, "lockdog.group=orders")
		absent(telemetry.MetricTickAge)
		second.Close()
		if _, ok := b.value(telemetry.MetricOldestAge, "lockdog.group=orders"); ok {
			t.Error("a gauge of a closed client")
		}
	})
}

// odd is a MeterProvider whose value cannot be compared, and whose meters may fail.
type odd struct {
	metricnoop.MeterProvider
	_   [0]func()
	err error
}

func (o odd) Meter(string, ...metric.MeterOption) metric.Meter {
	return testMeter{err: o.err, callbacks: new(int)}
}

// counted is a MeterProvider that knows how many callbacks it has.
type counted struct {
	metricnoop.MeterProvider
	callbacks *int
}

func (c counted) Meter(string, ...metric.MeterOption) metric.Meter {
	return testMeter{callbacks: c.callbacks}
}

type testMeter struct {
	metricnoop.Meter
	_         [0]func()
	err       error
	callbacks *int
}

func (m testMeter) Int64Counter(n string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	if n == telemetry.MetricErrors.Name && errors.Is(m.err, errBoom) {
		return metricnoop.Int64Counter{}, m.err
	}
	return m.Meter.Int64Counter(n, o...)
}

var errNoCallbacks = errors.New("no callbacks here")

func (m testMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	if errors.Is(m.err, errNoCallbacks) {
		return nil, m.err
	}
	*m.callbacks++
	return countedRegistration{callbacks: m.callbacks}, nil
}

type countedRegistration struct {
	metricnoop.Registration
	callbacks *int
}

func (r countedRegistration) Unregister() error {
	*r.callbacks--
	return nil
}

// One callback for all recorders of a provider, and none once they are closed.
func TestCallbacks(t *testing.T) {
	callbacks := 0
	for range 3 {
		var all []*telemetry.Recorder
		for range 3 {
			r, err := telemetry.NewRecorder(telemetry.Config{MeterProvider: counted{callbacks: &callbacks}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		for _, r := range all {
			if callbacks != 1 {
				t.Fatalf("%d callbacks", callbacks)
			}
			r.Close()
		}
		if callbacks != 0 {
			t.Fatalf("%d callbacks after Close", callbacks)
		}
	}
}

func TestOddProviders(t *testing.T) {
	for range 2 {
		r, err := telemetry.NewRecorder(telemetry.Config{MeterProvider: odd{}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
	}
	for _, want := range []error{errBoom, errNoCallbacks} {
		if _, err := telemetry.NewRecorder(telemetry.Config{MeterProvider: odd{err: want}}); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
}

// The globals of OpenTelemetry are set once in a process, so each of these runs in a process of its own.
func TestGlobals(t *testing.T) {
	children := map[string]func(*testing.T){"unset": childUnset, "replaced": childReplaced, "mixed": childMixed}
	if child := children[os.Getenv("LOCKDOG_TEST_CHILD")]; child != nil {
		child(t)
		return
	}
	for name := range children {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestGlobals$", "-test.v")
			cmd.Env = append(os.Environ(), "LOCKDOG_TEST_CHILD="+name)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "--- PASS: TestGlobals") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func newGlobal(t *testing.T, mp metric.MeterProvider) (*telemetry.Recorder, telemetry.Lock) {
	r, err := telemetry.NewRecorder(telemetry.Config{MeterProvider: mp, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, r.Lock("orders:42", "mutex", "", 0)
}

// A lock taken before the program sets its providers is seen once it has.
func childReplaced(t *testing.T) {
	r, l := newGlobal(t, nil)
	cycle := func() { one(t.Context(), r, &l) }
	cycle()
	h := granted(r, &l)
	_, w := r.StartAcquire(t.Context(), &l, ttl)
	w.WaitStart()
	r.WatchdogLeases(2)

	b := &bench{t: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	b.mp = sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader))
	otel.SetMeterProvider(b.mp)
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(b.spans)))

	h.Renewal(renewed(time.Now()))
	w.WaitEnd()
	_, batch := r.StartBatch(t.Context(), "n", 1, 0, true)
	batch.End(1, 0, 0, 0, "", nil)
	b.want(1, telemetry.MetricHeld, "lockdog.group=orders")
	b.want(0, telemetry.MetricWaiting, "lockdog.group=orders")
	b.want(2, telemetry.MetricWatchdogLeases)
	cycle()
	b.one("held orders")
	b.want(1, telemetry.MetricAcquisitions, "lockdog.group=orders", "lockdog.outcome=acquired")
	b.want(0, telemetry.MetricLosses, "lockdog.cause=stalled", "lockdog.group=orders")
	h.End(telemetry.EndReleased)
	b.want(0, telemetry.MetricHeld, "lockdog.group=orders")

	// Replaced once more, by a no-op and by an SDK.
	otel.SetTracerProvider(tracenoop.NewTracerProvider())
	cycle()
	b.one("held orders")
	again := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(again)))
	cycle()
	b.one("held orders")
	if n := len(again.GetSpans()); n == 0 {
		t.Error("the new provider got no spans")
	}
}

// Clients made before and after the provider was set, and one given it by hand, still share their gauges.
func childMixed(t *testing.T) {
	early, le := newGlobal(t, nil)
	b := &bench{t: t, reader: sdkmetric.NewManualReader()}
	b.mp = sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader))
	otel.SetMeterProvider(b.mp)
	late, ll := newGlobal(t, nil)
	byHand, lh := newGlobal(t, b.mp)
	for r, l := range map[*telemetry.Recorder]*telemetry.Lock{early: &le, late: &ll, byHand: &lh} {
		granted(r, l).Renewal(failed())
	}
	b.want(3, telemetry.MetricFailing, "lockdog.group=orders")
}

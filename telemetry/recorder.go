package telemetry

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Config says where a Recorder reports to. The zero value is the globals.
type Config struct {
	// TracerProvider; nil: the global one, also when it is replaced later.
	TracerProvider trace.TracerProvider
	// MeterProvider; nil: the global one. One set later is used too, as OpenTelemetry's default one forwards
	// to the first that replaces it.
	MeterProvider metric.MeterProvider
	// Logger; nil: slog.Default() at the time of each record.
	Logger *slog.Logger
	// State is asked each time metrics are collected, on the collecting goroutine. It must be quick and must
	// not create or close Recorders. It may be called once more while Close runs. nil: nothing to tell.
	State func() State
	// CallerAttributes puts the time that acquires wait on the spans of their callers.
	CallerAttributes bool
}

// State is what a client tells about itself when metrics are collected.
type State struct {
	Ticking         bool          // the watchdog has leases
	TickAge         time.Duration // since it last finished a pass; reported only while Ticking
	PubSubWanted    bool          // somebody waits, so there should be a subscription
	PubSubConnected bool          // there is one; reported only while PubSubWanted
}

// Recorder turns what happens in one client into spans, measurements and log records. Its methods, and those
// of the types it gives out, are safe for concurrent use where their own comments do not say otherwise, and
// never fail: telemetry must not break what it watches.
type Recorder struct {
	tracing  tracing
	metrics  *instruments
	ofMember *instruments // of members of a lock
	logger   *slog.Logger
	state    func() State
	shared   *registry
	closed   atomic.Bool

	callerAttributes bool

	leases upDown
	ends   Burst // what nobody counts in batches: leases that were canceled or held for long, deadlocks

	mu     sync.Mutex // held while groups is replaced
	groups atomic.Pointer[map[string]*group]
}

// NewRecorder makes a Recorder. The error is the MeterProvider's, when it refuses an instrument.
// Close it, or its client stays in the gauges.
func NewRecorder(cfg Config) (*Recorder, error) {
	provider := cfg.MeterProvider
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	r := &Recorder{
		tracing: tracing{configured: cfg.TracerProvider},
		logger:  cfg.Logger,
		state:   cfg.State,

		callerAttributes: cfg.CallerAttributes,
	}
	r.ends = Burst{rec: r, window: endsWindow}
	r.groups.Store(&map[string]*group{})
	var err error
	if r.metrics, err = newInstruments(meterOf(provider)); err != nil {
		return nil, err
	}
	r.ofMember = r.metrics.ofMember()
	r.leases.counter = r.metrics.watchdogLeases
	if r.shared, err = join(r, provider); err != nil {
		return nil, err
	}
	return r, nil
}

// Close takes the recorder out of the gauges. What is recorded afterwards is still counted. It may wait for a
// collection under way, so it must not be called with a lock held that Config.State takes. Further calls do
// nothing.
func (r *Recorder) Close() {
	if r.closed.CompareAndSwap(false, true) {
		leave(r, r.shared)
		r.ends.Flush()
	}
}

// Lock is the telemetry of one lock. It may be copied.
type Lock struct {
	rec   *Recorder
	role  *role
	name  string
	kind  string
	spans RenewalSpans
}

// Group is the group the lock is counted under: the one asked for, or "_other".
func (l *Lock) Group() string { return l.role.name }

// Lock describes the lock called name. kind is the kind of lock ("mutex"). An empty group means the name up
// to its first colon, without the brace that may open a hash tag, or "default" if that leaves nothing.
// It takes no lock and allocates nothing once the group is known.
func (r *Recorder) Lock(name, kind, groupName string, spans RenewalSpans) Lock {
	// OTLP refuses a whole batch of spans for one string that is no UTF-8.
	name = strings.ToValidUTF8(name, "\uFFFD")
	most := maxGroups
	if groupName == "" {
		groupName, most = groupOf(name), maxDefaultGroups
	} else {
		groupName = strings.ToValidUTF8(groupName, "\uFFFD")
	}
	return Lock{rec: r, role: &r.group(groupName, most).alone, name: name, kind: kind, spans: spans}
}

func groupOf(name string) string {
	prefix, _, found := strings.Cut(name, ":")
	prefix = strings.Trim(prefix, "{}")
	if !found || prefix == "" {
		return defaultGroup
	}
	return prefix
}

const (
	// maxDefaultGroups is how many groups of one recorder there may be for a name to make another. Names like
	// tenant7:job make one each, which nobody chose.
	maxDefaultGroups = 20
	// maxGroups bounds them with those that were asked for. The SDK keeps 2,000 attribute sets per instrument.
	maxGroups = 50
)

func (r *Recorder) group(name string, most int) *group {
	if g := (*r.groups.Load())[name]; g != nil {
		return g
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := *r.groups.Load()
	if g := known[name]; g != nil {
		return g
	}
	if name != otherGroup {
		named := len(known)
		if known[otherGroup] != nil {
			named--
		}
		if named >= most || !r.shared.admit(name) {
			name = otherGroup
			if g := known[name]; g != nil {
				return g
			}
		}
	}
	g := newGroup(name, r.metrics, r.ofMember)
	next := maps.Clone(known)
	next[name] = g
	r.groups.Store(&next)
	return g
}

// Error counts a failed call to Redis. Failed renewals are counted per lease by Hold.Renewal too; this one is
// per call. ctx gives the exemplar.
func (r *Recorder) Error(ctx context.Context, op Operation, t ErrorType) {
	if of := r.metrics.errorSets[op]; of != nil {
		r.metrics.errors.Add(ctx, 1, at(of, t).add...)
	}
}

// Command counts a command sent to Redis.
func (r *Recorder) Command(p Purpose) {
	r.metrics.commands.Add(context.Background(), 1, at(r.metrics.commandSets, p).add...)
}

// WatchdogLeases adds delta to the leases the watchdog looks after.
func (r *Recorder) WatchdogLeases(delta int) {
	r.leases.add(context.Background(), int64(delta), nil)
}

// PubSubReconnect counts a subscription that was made again.
func (r *Recorder) PubSubReconnect() {
	r.metrics.reconnects.Add(context.Background(), 1)
}

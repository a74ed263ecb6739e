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

// Config is the configuration of a Recorder. The zero value uses OpenTelemetry's globals and slog's default logger.
type Config struct {
	// TracerProvider; nil: the global one, also after it was replaced.
	TracerProvider trace.TracerProvider
	// MeterProvider; nil: the global one. If none is set when the Recorder is made, the first one that is set later is
	// used: OpenTelemetry's default provider forwards to it.
	MeterProvider metric.MeterProvider
	// Logger; nil: slog.Default() at the time of each record.
	Logger *slog.Logger
	// State is called each time metrics are collected, on the collecting goroutine. It must return quickly, and must
	// not create or close Recorders. It may still be called during Close or soon after it. nil: the gauges of State
	// have no value.
	State func() State
}

// State is the state of a client when metrics are collected.
type State struct {
	Ticking         bool          // the watchdog has leases
	TickAge         time.Duration // since the watchdog's last pass; reported only if Ticking
	PubSubWanted    bool          // the client needs subscriptions, for waiters or for its control channel
	PubSubConnected bool          // all connections for these work; reported only if PubSubWanted
}

// Recorder records the events of one client as spans, measurements and log records. Its methods, and those of the types
// that it returns, are safe for concurrent use unless their comments say otherwise. They never fail: telemetry must not
// break the locks.
type Recorder struct {
	tracing tracing
	logger  *slog.Logger
	state   func() State
	shared  *registry
	closed  atomic.Bool

	errors                 map[Operation]*counts
	commands               counts
	reconnects             metric.Int64Counter
	leases                 upDown
	batchTime, scheduleLag metric.Float64Histogram
	batchSets              sets
	agentRequests          counts

	ends Burst // for records without a batch: leases that were canceled or held too long, deadlocks

	mu     sync.Mutex // must be held to replace groups
	groups atomic.Pointer[map[string]*group]
}

// NewRecorder returns a Recorder. It returns an error if the MeterProvider refuses an instrument or the callback of the
// gauges. Close must be called: otherwise the client stays in the gauges.
func NewRecorder(cfg Config) (*Recorder, error) {
	provider := cfg.MeterProvider
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	r := &Recorder{
		tracing: tracing{configured: cfg.TracerProvider},
		logger:  cfg.Logger,
		state:   cfg.State,
	}
	r.ends = Burst{rec: r, window: endsWindow}
	r.groups.Store(&map[string]*group{}) // metrics may be collected from now on
	var err error
	if r.shared, err = join(r, provider); err != nil {
		return nil, err
	}
	i := r.shared.instruments
	r.groups.Store(&map[string]*group{otherGroup: newGroup(otherGroup, i)})
	r.errors = map[Operation]*counts{}
	for _, op := range MetricErrors.Labels[0].Values {
		c := newCounts(i, MetricErrors, KeyOperation.String(op))
		r.errors[Operation(op)] = &c
	}
	r.commands = newCounts(i, MetricCommands)
	r.reconnects = i.counters[MetricPubSubReconnects.Name]
	r.leases.counter = i.upDowns[MetricWatchdogLeases.Name]
	r.scheduleLag = i.histograms[MetricScheduleLag.Name]
	r.batchTime = i.histograms[MetricBatchDuration.Name]
	r.batchSets = newSets(MetricBatchDuration.Labels[0])
	r.agentRequests = newCounts(i, MetricAgentRequests)
	return r, nil
}

// Close removes the recorder from the gauges, and logs how many records were not logged by name. Later events are still
// counted. Close may wait for a collection that is under way, so it must not be called with a mutex held that
// Config.State locks. A second call does nothing.
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

// Group returns the group in which the lock is counted: its own (see Recorder.Lock), or "_other".
func (l *Lock) Group() string { return l.role.group.name }

// Lock returns the telemetry of the lock with a name. kind is the kind of lock ("mutex"). If groupName is empty, the
// group is the name up to its first colon, without the braces of a hash tag; "default" if there is no such prefix. If
// the group exists, Lock takes no mutex and allocates nothing.
func (r *Recorder) Lock(name, kind, groupName string, spans RenewalSpans) Lock {
	// OTLP refuses a whole batch of spans for one string that isn't UTF-8.
	name = strings.ToValidUTF8(name, "\uFFFD")
	most := maxGroups
	if groupName == "" {
		groupName, most = groupOf(name), maxDefaultGroups
	} else {
		groupName = strings.ToValidUTF8(groupName, "\uFFFD")
	}
	return Lock{rec: r, role: &r.group(groupName, most).standalone, name: name, kind: kind, spans: spans}
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
	// maxDefaultGroups limits the groups that are made from names: a name makes a new group only while the recorder has
	// fewer groups than that. Names like tenant7:job would make many groups that nobody wants.
	maxDefaultGroups = 20
	// maxGroups is the same limit for WithGroup. The SDK keeps 2,000 attribute sets per instrument.
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
	if len(known) > most || !r.shared.admit(name) { // known has otherGroup, too
		return known[otherGroup]
	}
	g := newGroup(name, r.shared.instruments)
	next := maps.Clone(known)
	next[name] = g
	r.groups.Store(&next)
	return g
}

// Error counts a failed call to Redis in lockdog.errors. ctx is for exemplars.
func (r *Recorder) Error(ctx context.Context, op Operation, t ErrorType) {
	if c := r.errors[op]; c != nil {
		c.inc(ctx, string(t))
	}
}

// Command counts a command sent to Redis.
func (r *Recorder) Command(p Purpose) {
	r.commands.inc(context.Background(), string(p))
}

// WatchdogLeases adds delta to the number of the watchdog's leases.
func (r *Recorder) WatchdogLeases(delta int) {
	r.leases.add(context.Background(), int64(delta))
}

// PubSubReconnect counts that a connection for subscriptions failed, and has to be made again.
func (r *Recorder) PubSubReconnect() {
	r.reconnects.Add(context.Background(), 1)
}

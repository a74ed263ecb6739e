package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// log writes a record about l. The span context goes into ctx, where handlers that know OpenTelemetry look for
// it, and into the attributes, for all others.
func (l *Lock) log(record Log, sc trace.SpanContext, err error, attrs ...slog.Attr) {
	all := make([]slog.Attr, 0, len(attrs)+6)
	all = append(all, slog.String("name", l.name), slog.String("group", l.Group()))
	if kind := l.kind; kind != "mutex" {
		all = append(all, slog.String("kind", kind))
	}
	all = append(all, attrs...)
	if err != nil {
		all = append(all, slog.String("error", printable(err.Error())))
	}
	ctx := context.Background()
	if sc.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, sc)
		all = append(all,
			slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	l.rec.log(ctx, record, all...)
}

// log writes a record about the hold.
func (h *Hold) log(record Log, sc trace.SpanContext, err error, attrs ...slog.Attr) {
	all := append(make([]slog.Attr, 0, len(attrs)+2), slog.String("owner", h.owner), slog.Int64("token", h.token))
	h.lock.log(record, sc, err, append(all, attrs...)...)
}

// seconds is a duration as metrics and spans have it: a JSON handler would write that of slog.Duration in nanoseconds.
func seconds(key string, d time.Duration) slog.Attr { return slog.Float64(key, d.Seconds()) }

func (r *Recorder) log(ctx context.Context, l Log, attrs ...slog.Attr) {
	r.slog().LogAttrs(ctx, l.Level, l.Message, attrs...)
}

func (r *Recorder) slog() *slog.Logger {
	if r.logger != nil {
		return r.logger
	}
	return slog.Default()
}

// logs reports whether records of this kind go anywhere, so that their attributes need not be made.
func (r *Recorder) logs(l Log) bool {
	return r.slog().Enabled(context.Background(), l.Level)
}

// burstNames is how many locks of one burst are logged by name, for each kind of record.
const burstNames = 10

// bursts are the records a Burst bounds, each with the one that tells how many more there were.
var bursts = [...]struct{ each, more Log }{
	{LogLost, LogMoreLost},
	{LogFail, LogMoreFail},
	{LogBack, LogMoreBack},
	{LogCut, LogMoreCut},
	{LogEnd, LogMoreEnd},
	{LogHeld, LogMoreHeld},
	{LogMember, LogMoreMember},
	{LogDeadlock, LogMoreDeadlock},
}

// burstCounts are how many records of each kind there were.
type burstCounts [len(bursts)]int

// Burst bounds the log records about many leases that fare the same at one time: a server that is gone for a
// moment must not turn ten thousand leases into as many lines. Ten are logged by name, the rest is counted.
// Methods may be called on a nil Burst, which bounds nothing, and concurrently.
type Burst struct {
	rec    *Recorder
	window time.Duration // 0: it lasts until Flush

	mu   sync.Mutex
	seen burstCounts
	ends time.Time // of the window
}

// endsWindow is how long leases that end or grow old by themselves count as one burst. Nobody is there to tell
// where a batch of those ends: ten thousand contexts end at once when a server shuts down.
const endsWindow = time.Second

// NewBurst starts a burst. It ends with Flush.
func (r *Recorder) NewBurst() *Burst { return &Burst{rec: r} }

// admit reports whether one more record of that kind is to be logged by name.
func (b *Burst) admit(l Log) bool {
	if b == nil {
		return true
	}
	kind := 0
	for bursts[kind].each.Message != l.Message {
		kind++
	}
	var before burstCounts
	b.mu.Lock()
	if b.window > 0 {
		if now := time.Now(); now.After(b.ends) {
			before, b.seen, b.ends = b.seen, burstCounts{}, now.Add(b.window)
		}
	}
	b.seen[kind]++
	named := b.seen[kind] <= burstNames
	b.mu.Unlock()
	b.rec.logMore(before)
	return named
}

// Flush logs how many were not logged by name. The Burst can then be used for the next batch.
func (b *Burst) Flush() {
	if b == nil {
		return
	}
	b.mu.Lock()
	seen := b.seen
	b.seen = burstCounts{}
	b.mu.Unlock()
	b.rec.logMore(seen)
}

func (r *Recorder) logMore(seen burstCounts) {
	for kind, n := range seen {
		if n > burstNames {
			r.log(context.Background(), bursts[kind].more, slog.Int("count", n-burstNames))
		}
	}
}

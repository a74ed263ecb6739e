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
	all = append(all, slog.String(LogKeyName, l.name), slog.String(LogKeyGroup, l.Group()))
	if kind := l.kind; kind != "mutex" {
		all = append(all, slog.String(LogKeyKind, kind))
	}
	all = append(all, attrs...)
	if err != nil {
		all = append(all, slog.String(LogKeyError, printable(err.Error())))
	}
	ctx := context.Background()
	if sc.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, sc)
		all = append(all,
			slog.String(LogKeyTraceID, sc.TraceID().String()), slog.String(LogKeySpanID, sc.SpanID().String()))
	}
	l.rec.log(ctx, record, all...)
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

// logs tells whether records of this kind go anywhere, so that their attributes need not be made.
func (r *Recorder) logs(l Log) bool {
	return r.slog().Enabled(context.Background(), l.Level)
}

// burstNames is how many locks of one burst are logged by name, for each kind of record.
const burstNames = 10

// burstKinds are the records a Burst bounds, each with the one that tells how many more there were.
var burstKinds = [...]struct{ each, more Log }{
	{LogLost, LogMoreLost},
	{LogFail, LogMoreFail},
	{LogBack, LogMoreBack},
	{LogCut, LogMoreCut},
	{LogEnd, LogMoreEnd},
	{LogHeld, LogMoreHeld},
	{LogMember, LogMoreMember},
}

const (
	burstLost = iota
	burstFail
	burstBack
	burstCut
	burstEnd
	burstHeld
	burstMember
)

// Burst bounds the log records about many leases that fare the same at one time: a server that is gone for a
// moment must not turn ten thousand leases into as many lines. Ten are logged by name, the rest is counted.
// Methods may be called on a nil Burst, which bounds nothing, and concurrently.
type Burst struct {
	rec *Recorder

	mu   sync.Mutex
	seen [len(burstKinds)]int
}

// NewBurst starts a burst. It ends with Flush.
func (r *Recorder) NewBurst() *Burst { return &Burst{rec: r} }

// admit tells whether one more record of that kind is to be logged by name.
func (b *Burst) admit(kind int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[kind]++
	return b.seen[kind] <= burstNames
}

// Flush logs how many were not logged by name. The Burst can then be used for the next batch.
func (b *Burst) Flush() {
	if b == nil {
		return
	}
	b.mu.Lock()
	seen := b.seen
	b.seen = [len(burstKinds)]int{}
	b.mu.Unlock()
	for kind, n := range seen {
		if n > burstNames {
			b.rec.log(context.Background(), burstKinds[kind].more, slog.Int(LogKeyCount, n-burstNames))
		}
	}
}

// burstWindow is how long leases that end or grow old by themselves count as one burst. Nobody is there to tell
// where a batch of those ends: ten thousand contexts end at once when a server shuts down.
const burstWindow = time.Second

// window is the Burst of such records.
type window struct {
	burst Burst

	mu   sync.Mutex
	ends time.Time
}

// admit tells whether one more record of that kind is to be logged by name, and logs how many were not when
// the last window is over.
func (w *window) admit(kind int) bool {
	now := time.Now()
	w.mu.Lock()
	over := now.After(w.ends)
	if over {
		w.ends = now.Add(burstWindow)
	}
	w.mu.Unlock()
	if over {
		w.burst.Flush()
	}
	return w.burst.admit(kind)
}

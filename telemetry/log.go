package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// log writes a record about l. The span context is in ctx, for handlers that know OpenTelemetry, and in the attributes,
// for all others.
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

// seconds returns a duration in seconds, as in metrics and spans: a JSON handler writes slog.Duration in nanoseconds.
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

// logs reports whether records of this kind are logged. If not, their attributes needn't be built.
func (r *Recorder) logs(l Log) bool {
	return r.slog().Enabled(context.Background(), l.Level)
}

// burstNames is how many locks of one burst are logged by name, for each kind of record.
const burstNames = 10

// bursts are the kinds of records that a Burst limits, each with the record that says how many more there were.
var bursts = [...]struct{ each, more Log }{
	{LogLost, LogMoreLost},
	{LogFail, LogMoreFail},
	{LogBack, LogMoreBack},
	{LogCut, LogMoreCut},
	{LogEnd, LogMoreEnd},
	{LogHeld, LogMoreHeld},
	{LogMember, LogMoreMember},
	{LogDeadlock, LogMoreDeadlock},
	{LogCrashed, LogMoreCrashed},
}

// burstCounts are the numbers of records of each kind.
type burstCounts [len(bursts)]int

// Burst limits the log records if the same happens to many leases at one time: if a server is down for a moment, its
// ten thousand leases must not write ten thousand lines. Of each kind ten records are logged by name, the others are
// counted. A nil Burst limits nothing. Methods are safe for concurrent use.
type Burst struct {
	rec    *Recorder
	window time.Duration // 0: it lasts until Flush

	mu    sync.Mutex
	seen  burstCounts
	ends  time.Time   // of the window
	timer *time.Timer // at the end of the window, logs what was only counted; nil: nothing was, or there is no window
}

// endsWindow is the window of Recorder.ends, whose records come without a batch that could end the burst. Example: ten
// thousand contexts end at once when a program shuts down.
const endsWindow = time.Second

// NewBurst returns a Burst that lasts until Flush.
func (r *Recorder) NewBurst() *Burst { return &Burst{rec: r} }

// admit counts a record of that kind, and reports whether it is to be logged by name. If the window is over, it begins
// a new one, and logs the counts of the old one.
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
			before, b.ends = b.take(), now.Add(b.window)
		}
	}
	b.seen[kind]++
	named := b.seen[kind] <= burstNames
	if !named && b.window > 0 && b.timer == nil {
		b.timer = time.AfterFunc(time.Until(b.ends), func() {
			defer func() { _ = recover() }() // the program's log may panic
			b.Flush()
		})
	}
	b.mu.Unlock()
	b.rec.logMore(before)
	return named
}

// Flush logs how many records were not logged by name. The Burst can then be used for the next batch.
func (b *Burst) Flush() {
	if b == nil {
		return
	}
	b.mu.Lock()
	seen := b.take()
	b.mu.Unlock()
	b.rec.logMore(seen)
}

// take returns the counts and resets them. mu must be held.
func (b *Burst) take() burstCounts {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	seen := b.seen
	b.seen = burstCounts{}
	return seen
}

func (r *Recorder) logMore(seen burstCounts) {
	for kind, n := range seen {
		if n > burstNames {
			r.log(context.Background(), bursts[kind].more, slog.Int("count", n-burstNames))
		}
	}
}

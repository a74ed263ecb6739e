package otelsetup

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/lmittmann/tint"
	"go.opentelemetry.io/otel/trace"
)

// The formats of the log.
const (
	logText = "text"
	logJSON = "json"
)

// The attributes of a log line with its trace, as in lockdog's own records.
const (
	traceID = "trace_id"
	spanID  = "span_id"
)

func newLogger(cfg Config) (*slog.Logger, error) {
	out := cfg.LogOutput
	if out == nil {
		out = os.Stderr
	}
	format := cfg.LogFormat
	if format == "" {
		format = logText
		if plainFile(out) {
			format = logJSON
		}
	}
	switch format {
	case logText:
		return slog.New(TraceHandler(tint.NewTextHandler(out, &tint.Options{
			Level:      cfg.LogLevel,
			TimeFormat: time.TimeOnly + ".000",
			NoColor:    cfg.NoColor || os.Getenv("NO_COLOR") != "" || plainFile(out),
		}))), nil
	case logJSON:
		return slog.New(TraceHandler(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: cfg.LogLevel}))), nil
	default:
		return nil, fmt.Errorf(
			"%w: Config.LogFormat is %q; %s and %s are supported", ErrConfig, format, logText, logJSON)
	}
}

// plainFile reports whether w is a file, but not a terminal. Any character device counts as a terminal.
func plainFile(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err != nil || info.Mode()&os.ModeCharDevice == 0
}

// TraceHandler returns a handler that adds trace_id and span_id to the records that next handles, from the ctx of the
// log call. They are at the top level, even inside a group. They aren't added to a record that has a trace_id at the
// top level, such as lockdog's.
func TraceHandler(next slog.Handler) slog.Handler {
	return &traceHandler{next: next, root: next}
}

type traceHandler struct {
	next    slog.Handler
	root    slog.Handler                      // as next was before its first group
	grouped []func(slog.Handler) slog.Handler // the WithAttrs and WithGroup calls since then: on root, they give next
	has     bool                              // root adds a trace_id
}

func (h *traceHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *traceHandler) Handle(ctx context.Context, rec slog.Record) error {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() || h.has || h.grouped == nil && hasTraceID(rec) {
		return h.next.Handle(ctx, rec)
	}
	ids := []slog.Attr{
		slog.String(traceID, sc.TraceID().String()),
		slog.String(spanID, sc.SpanID().String()),
	}
	if h.grouped == nil {
		rec = rec.Clone() // the original may share its attributes with other copies
		rec.AddAttrs(ids...)
		return h.next.Handle(ctx, rec)
	}
	// Attributes of the record would be inside the group; those of the root handler are at the top level.
	next := h.root.WithAttrs(ids)
	for _, apply := range h.grouped {
		next = apply(next)
	}
	return next.Handle(ctx, rec)
}

func hasTraceID(rec slog.Record) bool {
	for a := range rec.Attrs {
		if a.Key == traceID {
			return true
		}
	}
	return false
}

func (h *traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if h.grouped == nil {
		next := h.next.WithAttrs(attrs)
		has := slices.ContainsFunc(attrs, func(a slog.Attr) bool { return a.Key == traceID })
		return &traceHandler{next: next, root: next, has: h.has || has}
	}
	return h.inGroup(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

func (h *traceHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.inGroup(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h *traceHandler) inGroup(apply func(slog.Handler) slog.Handler) *traceHandler {
	c := *h
	c.next = apply(h.next)
	c.grouped = append(slices.Clip(h.grouped), apply)
	return &c
}

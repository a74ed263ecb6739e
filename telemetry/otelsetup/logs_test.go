package otelsetup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/slogtest"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

func TestLogColours(t *testing.T) {
	const escape = "\x1b["
	for _, c := range []struct {
		name, env string
		noColor   bool
		want      bool
	}{{"colour", "", false, true}, {"NoColor", "", true, false}, {"NO_COLOR", "1", false, false}} {
		p, log := start(t, map[string]string{"NO_COLOR": c.env}, func(cfg *otelsetup.Config) { cfg.NoColor = c.noColor })
		p.Logger.Warn("hello")
		if got := strings.Contains(log.String(), escape); got != c.want {
			t.Errorf("%s: %q", c.name, log)
		}
	}
}

// TestLogFormat: JSON where stderr is a file or a pipe, as in a container, unless the program says otherwise.
func TestLogFormat(t *testing.T) {
	before := os.Stderr
	defer func() { os.Stderr = before }()
	ctx := trace.ContextWithSpanContext(t.Context(), sampledParent)
	for format, isJSON := range map[string]bool{"": true, "json": true, "text": false} {
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		os.Stderr = file
		p, _ := start(t, nil, func(cfg *otelsetup.Config) { cfg.NoColor, cfg.LogOutput, cfg.LogFormat = false, nil, format })
		p.Logger.InfoContext(ctx, "hello", "n", 1)
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		var rec map[string]any
		if err := json.Unmarshal(text, &rec); (err == nil) != isJSON {
			t.Errorf("%q: %v: %s", format, err, text)
		}
		if isJSON && (rec["msg"] != "hello" || rec["level"] != "INFO" || rec["n"] != 1.0 || rec["trace_id"] != sampledParent.TraceID().String()) {
			t.Errorf("%q: %s", format, text)
		}
		if !isJSON && (!strings.Contains(string(text), "hello n=1 trace_id=") || strings.Contains(string(text), "\x1b[")) {
			t.Errorf("%q: %q", format, text)
		}
	}
	p, log := start(t, nil, func(cfg *otelsetup.Config) { cfg.LogFormat, cfg.LogLevel = "json", slog.LevelWarn })
	p.Logger.Info("quiet")
	p.Logger.Warn("loud")
	if text := log.String(); strings.Contains(text, "quiet") || !strings.HasPrefix(text, "{") {
		t.Errorf("log %s", text)
	}
}

func TestLogLevel(t *testing.T) {
	p, log := start(t, nil, nil)
	p.Logger.Debug("quiet")
	p.Logger.Info("loud")
	if strings.Contains(log.String(), "quiet") || !strings.Contains(log.String(), "loud") {
		t.Errorf("log %s", log)
	}
	level := new(slog.LevelVar)
	p, _ = start(t, nil, func(c *otelsetup.Config) { c.LogLevel = level })
	level.Set(slog.LevelError)
	if p.Logger.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("the level cannot be changed")
	}
	if p, _ := start(t, nil, func(c *otelsetup.Config) { c.LogOutput = nil }); !p.Logger.Enabled(t.Context(), slog.LevelInfo) {
		t.Error("no default log")
	}
}

// TestTraceHandler: trace_id and span_id at the top level, once.
func TestTraceHandler(t *testing.T) {
	ctx := trace.ContextWithSpanContext(context.Background(), sampledParent)
	id, span := sampledParent.TraceID().String(), sampledParent.SpanID().String()
	for _, c := range []struct {
		name string
		log  func(l *slog.Logger)
		want map[string]any // beside time, level and msg
	}{
		{"plain", func(l *slog.Logger) { l.InfoContext(ctx, "m", "a", 1) }, map[string]any{"a": 1.0, "trace_id": id, "span_id": span}},
		{"no span", func(l *slog.Logger) { l.Info("m", "a", 1) }, map[string]any{"a": 1.0}},
		{"With", func(l *slog.Logger) { l.With("a", 1).InfoContext(ctx, "m") }, map[string]any{"a": 1.0, "trace_id": id, "span_id": span}},
		{
			"group", func(l *slog.Logger) { l.With("a", 1).WithGroup("g").With("b", 2).InfoContext(ctx, "m", "c", 3) },
			map[string]any{"a": 1.0, "g": map[string]any{"b": 2.0, "c": 3.0}, "trace_id": id, "span_id": span},
		},
		{"there already", func(l *slog.Logger) { l.InfoContext(ctx, "m", "trace_id", "x") }, map[string]any{"trace_id": "x"}},
		{
			"there by With", func(l *slog.Logger) { l.With("trace_id", "x").WithGroup("g").InfoContext(ctx, "m", "c", 3) },
			map[string]any{"trace_id": "x", "g": map[string]any{"c": 3.0}},
		},
		{
			"its like in a group", func(l *slog.Logger) { l.WithGroup("g").InfoContext(ctx, "m", "trace_id", "x") },
			map[string]any{"g": map[string]any{"trace_id": "x"}, "trace_id": id, "span_id": span},
		},
	} {
		var buf bytes.Buffer
		c.log(slog.New(otelsetup.TraceHandler(slog.NewJSONHandler(&buf, nil))))
		if n := strings.Count(strings.SplitN(buf.String(), `"g":`, 2)[0], `"trace_id"`); n > 1 {
			t.Errorf("%s: trace_id %d times: %s", c.name, n, buf.String())
		}
		got := parse(t, &buf)
		for _, k := range []string{"time", "level", "msg"} {
			delete(got, k)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// parse reads a record.
func parse(t *testing.T, buf *bytes.Buffer) map[string]any {
	t.Helper()
	var record map[string]any
	if err := json.Unmarshal(buf.Bytes(), &record); err != nil {
		t.Fatal(err)
	}
	return record
}

// Two loggers made from one do not share what they were made with.
func TestTraceHandlerBranches(t *testing.T) {
	var buf bytes.Buffer
	ctx := trace.ContextWithSpanContext(context.Background(), sampledParent)
	group := slog.New(otelsetup.TraceHandler(slog.NewTextHandler(&buf, nil))).WithGroup("g").With("x", 1).With("y", 2)
	a, b := group.With("a", 1), group.With("b", 2)
	a.InfoContext(ctx, "m")
	b.InfoContext(ctx, "m")
	first, second, _ := strings.Cut(buf.String(), "\n")
	if !strings.Contains(first, "g.a=1") || strings.Contains(first, "g.b") ||
		!strings.Contains(second, "g.b=2") || strings.Contains(second, "g.a") {
		t.Errorf("a: %s\nb: %s", first, second)
	}
}

// TestSlogtest is slog's own check of a handler.
func TestSlogtest(t *testing.T) {
	var buf bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		buf.Reset()
		return otelsetup.TraceHandler(slog.NewJSONHandler(&buf, nil))
	}, func(t *testing.T) map[string]any { return parse(t, &buf) })
}

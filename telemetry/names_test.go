package telemetry_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/telemetry/internal/story"
)

func withState(s func() telemetry.State) func(*telemetry.Config, *[]sdktrace.TracerProviderOption) {
	return func(c *telemetry.Config, _ *[]sdktrace.TracerProviderOption) { c.State = s }
}

// TestMetricsTable compares what is emitted with what names.go says, both ways: names, kinds, units,
// descriptions, buckets, labels and their values.
func TestMetricsTable(t *testing.T) {
	b := newBench(t, withState(story.Busy))
	defer story.Everything(b.caller, b.Recorder, &b.lock).End(telemetry.EndReleased)
	emitted := b.metrics()
	for _, m := range telemetry.Metrics {
		got, ok := emitted[m.Name]
		if !ok {
			t.Errorf("%s is not emitted", m.Name)
			continue
		}
		delete(emitted, m.Name)
		if got.Unit != m.Unit || got.Description != m.Description || m.Description == "" {
			t.Errorf("%s: unit %q, description %q", m.Name, got.Unit, got.Description)
		}
		kind, buckets := shape(got)
		if kind != m.Kind || !slices.Equal(buckets, m.Buckets) || !slices.IsSorted(buckets) {
			t.Errorf("%s is a %s with buckets %v, want %s, %v", m.Name, kind, buckets, m.Kind, m.Buckets)
		}
		series := points(got)
		want := 1
		for _, l := range m.Labels {
			seen := map[string]bool{}
			for _, p := range series {
				v, ok := p.attrs.Value(l.Key)
				if !ok || p.attrs.Len() != len(m.Labels) {
					t.Errorf("%s: labels %v", m.Name, p.attrs.Encoded(attribute.DefaultEncoder()))
				}
				seen[v.AsString()] = true
			}
			values := l.Values
			if l.Key == telemetry.KeyGroup {
				values = []string{"orders"}
			}
			want *= len(values)
			wantSet(t, m.Name+", "+string(l.Key), seen, values)
		}
		if len(series) != want {
			t.Errorf("%s: %d series, want %d", m.Name, len(series), want)
		}
	}
	for name := range emitted {
		t.Errorf("%s is not in names.go", name)
	}
}

func shape(m metricdata.Metrics) (string, []float64) {
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		if d.IsMonotonic {
			return "counter", nil
		}
		return "updowncounter", nil
	case metricdata.Histogram[float64]:
		return "histogram", d.DataPoints[0].Bounds
	case metricdata.Histogram[int64]:
		return "histogram", d.DataPoints[0].Bounds
	}
	return "gauge", nil
}

// wantSet compares a set with what it should be.
func wantSet[K cmp.Ordered](t *testing.T, what string, set map[K]bool, want []K) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(set)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%s: got\n%v, table says\n%v", what, got, want)
	}
}

// TestSpansTable compares the spans emitted with the table, both ways.
func TestSpansTable(t *testing.T) {
	b := newBench(t)
	story.Everything(b.caller, b.Recorder, &b.lock).End(telemetry.EndReleased)
	emitted := map[string]map[attribute.Key]bool{} // by the name of a span, or of a span and its event
	note := func(name string, attrs []attribute.KeyValue) {
		if emitted[name] == nil {
			emitted[name] = map[attribute.Key]bool{}
		}
		for _, a := range attrs {
			emitted[name][a.Key] = true
		}
	}
	for _, s := range b.spans.GetSpans() {
		name := strings.Replace(s.Name, " member ", " ", 1)
		note(name, s.Attributes)
		for _, e := range s.Events {
			note(name+", event "+e.Name, e.Attributes)
		}
	}
	delete(emitted, "caller")
	compare := func(name, description string, want []attribute.Key) {
		wantSet(t, name, emitted[name], want)
		if description == "" {
			t.Errorf("%s is not described", name)
		}
		delete(emitted, name)
	}
	for _, s := range telemetry.Spans {
		name := s.Name + " orders"
		if s.Plain {
			name = s.Name
		}
		if s.Parent == "" {
			t.Errorf("%s has no parent", name)
		}
		compare(name, s.Description, s.Attributes)
		for _, e := range s.Events {
			compare(name+", event "+e.Name, e.Description, e.Attributes)
		}
	}
	for name := range emitted {
		t.Errorf("%s is not in the table", name)
	}
}

// TestLogsTable does so for the log records.
func TestLogsTable(t *testing.T) {
	b := newBench(t)
	b.lock = b.Lock("orders:42", "quorum", "", 0)
	story.Everything(b.caller, b.Recorder, &b.lock).End(telemetry.EndReleased)
	b.Close()
	kinds, keys := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(b.records.buf.String()) {
		var rec map[string]any
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		kinds[fmt.Sprint(rec["level"], " ", rec["msg"])] = true
		for k := range rec {
			keys[k] = true
		}
	}
	var known []string
	for _, l := range telemetry.Logs {
		known = append(known, l.Level.String()+" "+l.Message)
	}
	wantSet(t, "messages", kinds, known)
	wantSet(t, "keys", keys, []string{
		"time", "level", "msg", "name", "group", "kind", "owner", "token", "cause", "reason", "error", "error_type",
		"attempt", "remaining", "held", "node", "by", "caller", "count", "cycle", "broken", "pid", "trace_id", "span_id",
	})
}

// TestBuckets: a quantile is read off two neighbouring bounds, so it can be as far from the truth as they are from each other.
func TestBuckets(t *testing.T) {
	for _, m := range telemetry.Metrics {
		most := 5.0 / 3
		if m.Name == telemetry.MetricHoldDuration.Name || m.Unit != "s" {
			most = 2 // of a range of seven decades, or of numbers that are small
		}
		for i, bound := range m.Buckets {
			if i > 0 && bound > most*m.Buckets[i-1]*(1+1e-9) {
				t.Errorf("%s: %v is more than %.2f times %v", m.Name, bound, most, m.Buckets[i-1])
			}
		}
	}
	if sizes := telemetry.MetricBatchSize.Buckets; sizes[len(sizes)-1] != 4096 {
		t.Errorf("batch sizes up to %v", sizes[len(sizes)-1])
	}
}

// TestValues: each constant is in the list of values of an attribute; only spans have the ends of holds.
func TestValues(t *testing.T) {
	listed := map[string]bool{"free": true} // on spans only
	for _, m := range telemetry.Metrics {
		for _, l := range m.Labels {
			for _, v := range l.Values {
				listed[v] = true
			}
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "enums.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && spec.Type.(*ast.Ident).Name != "HoldEnd" {
				n++
				if v, err := strconv.Unquote(lit.Value); err != nil || !listed[v] {
					t.Errorf("%s = %s isn't in names.go", spec.Names[0], lit.Value)
				}
			}
		}
		return true
	})
	if n < 50 {
		t.Errorf("%d constants", n)
	}
}

// A value out of its list must cost no more than an odd label.
func TestUnknownValues(t *testing.T) {
	const bad = "bad"
	b := newBench(t)
	_, a := b.StartAcquire(b.caller, &b.lock, ttl)
	a.Wakeup(bad)
	a.Takeover(bad)
	h := new(telemetry.Hold)
	a.Grant(h, "", 0)
	ev := renewed(b.one("held orders").StartTime)
	ev.Outcome = bad
	h.Renewal(ev)
	h.Lost(bad, nil, nil)
	h.Canceled(bad, nil)
	_, rel := b.StartRelease(b.caller, h)
	rel.End(bad, false, nil)
	h.End(bad)
	b.Error(b.caller, bad, bad)
	b.Command(bad)
	b.want(1, telemetry.MetricCommands, "lockdog.purpose=other")
	if len(b.metrics()[telemetry.MetricErrors.Name].Name) != 0 {
		t.Error("an error of no kind was counted")
	}
}

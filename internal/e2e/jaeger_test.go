//go:build e2e

package e2e_test

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// jaegerConfig is one Jaeger 2 in memory, on loopback, that adjusts clock skew. %[..]s: 1 query, 2 query over gRPC, 3 OTLP, 4 health.
const jaegerConfig = `
service:
  extensions: [jaeger_storage, jaeger_query, healthcheckv2]
  pipelines:
    traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}
  telemetry:
    metrics: {level: none}
    logs: {level: warn}
extensions:
  jaeger_query:
    storage: {traces: memory}
    max_clock_skew_adjust: 1h
    enable_tracing: false
    http: {endpoint: "%[1]s"}
    grpc: {endpoint: "%[2]s"}
  jaeger_storage:
    backends:
      memory: {memory: {max_traces: 50000}}
  healthcheckv2: {use_v2: true, http: {endpoint: "%[4]s"}}
receivers:
  otlp: {protocols: {http: {endpoint: "%[3]s"}}}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
`

// jaeger is a Jaeger that runs.
type jaeger struct {
	url, otlp string // of the query API and UI; of the receiver, as host:port
}

func startJaeger(t *testing.T, name string) *jaeger {
	t.Helper()
	bin := fromRoot(t, "bin", "jaeger")
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("Jaeger is not built; get it with: internal/ci/jaeger.sh: %v", err)
	}
	addrs := freeAddrs(t, 4)
	config := filepath.Join(t.TempDir(), "jaeger.yaml")
	text := fmt.Sprintf(jaegerConfig, addrs[0], addrs[1], addrs[2], addrs[3])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	j := &jaeger{url: "http://" + addrs[0], otlp: addrs[2]}
	launch(t, name, nil, bin, "--config", config).ready(t, j.url+"/api/services")
	return j
}

// jaegerTrace is a trace as the API shows it. Times are in microseconds.
type jaegerTrace struct {
	TraceID   string
	Spans     []*span
	Processes map[string]struct {
		ServiceName string
		Tags        tags
	}
}

type span struct {
	TraceID, SpanID, OperationName, ProcessID string
	StartTime, Duration                       int64
	References                                []reference
	Tags                                      tags
	Warnings                                  []string
	Logs                                      []struct{ Fields tags } // events
}

type reference struct{ RefType, TraceID, SpanID string }

type tags []struct {
	Key   string
	Value any
}

// get gives the text of a value, "" when there is none.
func (ts tags) get(key string) string {
	for _, t := range ts {
		if t.Key == key {
			if f, ok := t.Value.(float64); ok { // fmt would write large numbers with an exponent
				return strconv.FormatFloat(f, 'f', -1, 64)
			}
			return fmt.Sprint(t.Value)
		}
	}
	return ""
}

func (s *span) end() int64 { return s.StartTime + s.Duration }

// parent is the span's parent in the same trace, "" for a root.
func (s *span) parent() string {
	for _, r := range s.References {
		if r.RefType == "CHILD_OF" && r.TraceID == s.TraceID {
			return r.SpanID
		}
	}
	return ""
}

// links are the references but for the parent.
func (s *span) links() (all []reference) {
	for _, r := range s.References {
		if r.RefType != "CHILD_OF" {
			all = append(all, r)
		}
	}
	return all
}

func (s *span) String() string {
	return fmt.Sprintf("%q (%s/%s)", s.OperationName, s.TraceID, s.SpanID)
}

// all are the spans of a name, in the order they started.
func (tr *jaegerTrace) all(name string) (found []*span) {
	for _, s := range tr.Spans {
		if s.OperationName == name {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *span) int { return cmp.Compare(a.StartTime, b.StartTime) })
	return found
}

// one is the only span of a name.
func (tr *jaegerTrace) one(t *testing.T, name string) *span {
	t.Helper()
	found := tr.all(name)
	if len(found) != 1 {
		t.Fatalf("trace %s has %d spans %q, want 1: %s", tr.TraceID, len(found), name, tr)
	}
	return found[0]
}

func (tr *jaegerTrace) byID(id string) *span {
	for _, s := range tr.Spans {
		if s.SpanID == id {
			return s
		}
	}
	return nil
}

// pid is that of the process that made a span.
func (tr *jaegerTrace) pid(s *span) string { return tr.Processes[s.ProcessID].Tags.get("process.pid") }

func (tr *jaegerTrace) String() string {
	var names []string
	for _, s := range tr.Spans {
		names = append(names, s.OperationName)
	}
	return strings.Join(names, ", ")
}

// trace gets one trace by its id. Renewals come long after the acquire, which is over by then: Jaeger must leave them where they are.
func (j *jaeger) trace(t *testing.T, id string) (*jaegerTrace, error) {
	t.Helper()
	found, err := getJSON[[]*jaegerTrace](t, j.url+"/api/traces/"+id, nil)
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d traces have the id %s", len(found), id)
	}
	for _, s := range found[0].Spans {
		for _, kind := range telemetry.Spans {
			if warnings := strings.Join(s.Warnings, "; "); strings.HasPrefix(s.OperationName, kind.Name) && strings.Contains(warnings, "adjusted by") {
				t.Errorf("Jaeger has moved %v: %s", s, warnings)
			}
		}
	}
	return found[0], nil
}

// find gets the latest traces of a service that have a span of that name.
func (j *jaeger) find(t *testing.T, service, name string) ([]*jaegerTrace, error) {
	t.Helper()
	return getJSON[[]*jaegerTrace](t, j.url+"/api/traces", url.Values{
		"service": {service}, "operation": {name}, "limit": {"50"}, "lookback": {"1h"},
	})
}

// complete waits until a trace has all the spans that want lists, as many of each name as they are listed, at least.
func (j *jaeger) complete(t *testing.T, id string, want ...string) (found *jaegerTrace) {
	t.Helper()
	until(t, spanLimit, "trace "+id+" is complete", func() (err error) {
		if found, err = j.trace(t, id); err != nil {
			return err
		}
		need := map[string]int{}
		for _, name := range want {
			need[name]++
		}
		for name, n := range need {
			if err := unless(len(found.all(name)) >= n, "%d spans %q of %d in %s", len(found.all(name)), name, n, found); err != nil {
				return err
			}
		}
		return nil
	})
	return found
}

// spanLimit is how long a span that has ended may take to be seen in Jaeger.
const spanLimit = 20 * time.Second

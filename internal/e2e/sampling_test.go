//go:build e2e

package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// lateSpan is a span of a lock as the collector gets it. %[..]s: 1 trace id, 2 span id, 3 name, 4 and 5 times in ns, 6 status,
// 7 group, 8 a further attribute.
const lateSpan = `{"traceId": "%[1]s", "spanId": "%[2]s", "name": "%[3]s", "kind": 1, "startTimeUnixNano": "%[4]d", "endTimeUnixNano": "%[5]d",
"status": {"code": %[6]d}, "attributes": [{"key": "lockdog.group", "value": {"stringValue": "%[7]s"}}%[8]s]}`

// TestTailSampling runs the collector that docs/TELEMETRY.md describes: what becomes of spans that come when their trace has been decided on.
func TestTailSampling(t *testing.T) {
	doc, err := os.ReadFile(fromRoot(t, "docs", "TELEMETRY.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```yaml\n")
	config, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("docs/TELEMETRY.md has no configuration of a collector")
	}
	j, otlp := startJaeger(t, "jaeger-sampled"), freeAddrs(t, 1)[0]
	for of, ours := range map[string]string{
		"0.0.0.0:4318": otlp, "jaeger:4318": j.otlp, "decision_wait: 30s": "decision_wait: 1s",
		"service:\n": "service:\n  telemetry: {metrics: {level: none}}\n", // it would take a port for them
	} {
		if strings.Count(config, of) != 1 {
			t.Fatalf("docs/TELEMETRY.md has %d of %q", strings.Count(config, of), of)
		}
		config = strings.Replace(config, of, ours, 1)
	}
	file := filepath.Join(t.TempDir(), "collector.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	collector := launch(t, "collector", nil, fromRoot(t, "bin", "jaeger"), "--config", file) // Jaeger 2 is a collector

	const failed = 2
	const dropped, kept = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736" // the first is not of the 1 %
	ids := 0
	spanOf := func(trace string, kind telemetry.Span, group string, status int, attribute string) string {
		ids++
		now := time.Now().UnixNano()
		return fmt.Sprintf(lateSpan, trace, fmt.Sprintf("%016x", ids), kind.Name+" "+group, now, now+1000, status, group, attribute)
	}
	send := func(spans ...string) error {
		if collector.Ended() {
			t.Fatalf("the collector ended:\n%s", collector.tail())
		}
		body := `{"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "orders"}}]}, "scopeSpans": [{"spans": [` +
			strings.Join(spans, ",") + `]}]}]}`
		req, err := http.NewRequest(http.MethodPost, "http://"+otlp+"/v1/traces", bytes.NewBufferString(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		_, err = call(t, req)
		return err
	}
	grants := []string{spanOf(dropped, telemetry.SpanHeld, "orders", 0, ""), spanOf(kept, telemetry.SpanHeld, "report", 0, "")}
	until(t, startLimit, "the collector takes spans", func() error { return send(grants...) })
	j.complete(t, kept, ofReport(telemetry.SpanHeld)) // it has decided

	const cause = `, {"key": "lockdog.cause", "value": {"stringValue": "missing"}}`
	const outcome = `, {"key": "lockdog.outcome", "value": {"stringValue": "error"}}`
	if err := send(
		spanOf(dropped, telemetry.SpanRenew, "orders", 0, ""), spanOf(dropped, telemetry.SpanRenew, "orders", failed, outcome),
		spanOf(dropped, telemetry.SpanLost, "orders", failed, cause),
		spanOf(kept, telemetry.SpanRenew, "report", 0, ""), spanOf(kept, telemetry.SpanHold, "report", 0, ""),
		spanOf(kept, telemetry.SpanLost, "report", failed, cause),
	); err != nil {
		t.Fatal(err)
	}
	j.complete(t, kept, ofReport(telemetry.SpanHeld), ofReport(telemetry.SpanRenew), ofReport(telemetry.SpanHold), ofReport(telemetry.SpanLost))
	got := j.complete(t, dropped, ofOrders(telemetry.SpanLost), ofOrders(telemetry.SpanRenew))
	names := strings.Split(got.String(), ", ")
	slices.Sort(names)
	if want := []string{ofOrders(telemetry.SpanLost), ofOrders(telemetry.SpanRenew)}; !slices.Equal(names, want) {
		t.Errorf("of a trace that was dropped Jaeger has %q, want %q", names, want)
	}

	// What the runbook has people search by.
	for tag, want := range map[string]int{"lockdog.outcome": 1, "lockdog.cause": 0} {
		traces, err := getJSON[[]*jaegerTrace](t, j.url+"/api/traces", url.Values{
			"service": {orders}, "operation": {ofOrders(telemetry.SpanRenew)}, "lookback": {"1h"}, "tags": {fmt.Sprintf(`{%q: "error"}`, tag)},
		})
		if err != nil || len(traces) != want {
			t.Errorf("by %s=error Jaeger finds %d traces, want %d: %v", tag, len(traces), want, err)
		}
	}
}

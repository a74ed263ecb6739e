//go:build e2e

package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// testClockSkew: Jaeger moves a span that lies outside of its parent, or warns about it. Renewals come long after the
// acquire, which is over by then, and must be left where they are.
func testClockSkew(t *testing.T, s *stack, facts *report) {
	checkJaegerLooks(t, s)

	var report *jaegerTrace
	until(t, 3*reportHold, "a report has been written", func() error {
		all, err := s.plain.find(t, orders, ofReport(telemetry.SpanHold))
		if err != nil {
			return err
		}
		for _, tr := range all {
			if len(tr.all("write report")) > 0 {
				report = tr
			}
		}
		return unless(report != nil, "%d traces with a hold, none of them complete", len(all))
	})
	renewals := len(report.all(ofReport(telemetry.SpanRenew)))
	if least := int(reportHold/(shortLease/3)) - 1; renewals < least {
		t.Errorf("%d renewals in %v, want %d at least: %v", renewals, reportHold, least, report)
	}
	checkUnmoved(t, s, report.TraceID)
	facts.add("a hold of %v: %d renewals, none moved or warned about by Jaeger, with clock-skew adjustment off and on", reportHold, renewals)
}

// checkUnmoved checks that neither Jaeger has anything to say of lockdog's spans in a trace, and that both show them at the same time.
func checkUnmoved(t *testing.T, s *stack, id string) {
	t.Helper()
	plain, err := s.plain.trace(t, id)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, sp := range plain.Spans {
		names = append(names, sp.OperationName)
	}
	adjusted := s.adjusting.complete(t, id, names...)
	seen := 0
	for _, a := range plain.Spans {
		if !isLockdogs(a) {
			continue
		}
		seen++
		b := adjusted.byID(a.SpanID)
		switch {
		case b == nil:
			t.Errorf("%v is in one Jaeger only", a)
		case len(a.Warnings) > 0 || len(b.Warnings) > 0:
			t.Errorf("%v: warnings without adjustment %q, with it %q", a, a.Warnings, b.Warnings)
		case a.StartTime != b.StartTime:
			t.Errorf("%v was moved by %v", a, time.Duration(b.StartTime-a.StartTime)*time.Microsecond)
		}
	}
	if seen == 0 {
		t.Errorf("no spans of lockdog in %v", plain)
	}
}

func isLockdogs(s *span) bool {
	for _, kind := range telemetry.Spans {
		if s.OperationName == kind.Name || strings.HasPrefix(s.OperationName, kind.Name+" ") {
			return true
		}
	}
	return false
}

// skewed are two spans as they must not be: the child begins when its parent is long over. %[..]: 1 trace id, 2-5 times in ns.
const skewed = `{"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "skewed"}}]},
"scopeSpans": [{"spans": [
{"traceId": "%[1]s", "spanId": "0000000000000001", "name": "parent", "kind": 1, "startTimeUnixNano": "%[2]d", "endTimeUnixNano": "%[3]d"},
{"traceId": "%[1]s", "spanId": "0000000000000002", "parentSpanId": "0000000000000001", "name": "child", "kind": 1,
 "startTimeUnixNano": "%[4]d", "endTimeUnixNano": "%[5]d"}]}]}]}`

// checkJaegerLooks makes sure that both Jaegers would complain, as we are after their silence.
func checkJaegerLooks(t *testing.T, s *stack) {
	t.Helper()
	id, now := newTraceID(), time.Now().UnixNano()
	const ms = int64(time.Millisecond)
	body := fmt.Sprintf(skewed, id, now-5000*ms, now-4990*ms, now-1000*ms, now-999*ms)
	req, err := http.NewRequest(http.MethodPost, "http://"+s.plain.otlp+"/v1/traces", bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if _, err := call(t, req); err != nil {
		t.Fatal(err)
	}
	warnings := map[*jaeger]string{s.plain: "adjustment disabled", s.adjusting: "adjusted by"}
	for j, warning := range warnings {
		tr := j.complete(t, id, "parent", "child")
		if got := strings.Join(tr.one(t, "child").Warnings, "; "); !strings.Contains(got, warning) {
			t.Errorf("of a span outside of its parent Jaeger says %q, want %q", got, warning)
		}
	}
}

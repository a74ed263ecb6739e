//go:build e2e

package e2e_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/lockdog/lockdog/telemetry"
)

// testExemplars goes from a bucket of a histogram to the very lock, in Jaeger.
func testExemplars(t *testing.T, s *stack, facts *report) {
	acquires := follow(t, s, telemetry.MetricAcquireDuration, ofOrders(telemetry.SpanAcquire))
	for _, e := range acquires {
		took, err := strconv.ParseFloat(e.Value, 64)
		if err != nil {
			t.Fatal(err)
		}
		// The span ends a little after the time was taken.
		if spent := float64(e.span.Duration) / 1e6; math.Abs(spent-took) > 0.05 {
			t.Errorf("the exemplar says %v s, %v took %v s", took, e.span, spent)
		}
	}
	renewals := follow(t, s, telemetry.MetricUtilization, ofReport(telemetry.SpanHeld))
	facts.add("%d exemplars of acquires and %d of renewals lead to their traces", len(acquires), len(renewals))
}

type resolved struct {
	exemplar
	span *span
}

// follow looks the exemplars of a histogram up in Jaeger, until one is of a span of that name.
func follow(t *testing.T, s *stack, m telemetry.Metric, name string) (found []resolved) {
	t.Helper()
	until(t, 2*spanLimit, "an exemplar of "+m.Prometheus+" leads to "+name, func() error {
		all, err := s.prometheus.exemplars(t, m.Prometheus+"_bucket")
		if err != nil {
			return err
		}
		found = nil
		for _, e := range all {
			tr, err := s.jaeger.trace(t, e.Labels["trace_id"])
			if err != nil {
				continue // not exported yet
			}
			if sp := tr.byID(e.Labels["span_id"]); sp != nil && sp.OperationName == name {
				found = append(found, resolved{e, sp})
			}
		}
		return unless(len(found) > 0, "%d exemplars, none of them leads there", len(all))
	})
	return found
}

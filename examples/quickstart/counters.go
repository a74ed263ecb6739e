package main

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockdog/lockdog/telemetry"
)

// counter is one metric, with what it counted under each label.
type counter struct {
	name   string
	values []string
}

// readCounters scrapes lockdog's counters, in the order that package telemetry lists them, and leaves out the zeros.
func readCounters(registry *prometheus.Registry) ([]counter, error) {
	families, err := registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("reading the metrics: %w", err)
	}
	values := make(map[string][]string)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			n := m.GetCounter().GetValue()
			if n == 0 {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				if !strings.HasSuffix(l.GetName(), "_group") { // there is one only
					labels = append(labels, l.GetValue())
				}
			}
			values[family.GetName()] = append(values[family.GetName()],
				strings.TrimSpace(fmt.Sprintf("%s %.0f", strings.Join(labels, "/"), n)))
		}
	}
	var rows []counter
	for _, m := range telemetry.Metrics {
		if m.Kind == telemetry.Counter && values[m.Prometheus] != nil {
			rows = append(rows, counter{m.Prometheus, values[m.Prometheus]})
		}
	}
	return rows, nil
}

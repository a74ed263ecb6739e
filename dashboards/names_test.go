package dashboards_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/telemetry"
)

// series is what the names of Prometheus series stand for.
type series struct {
	metric string              // in OpenTelemetry; "" for what a rule records
	labels map[string][]string // closed list of values, or nil: any
}

// target are the labels that a scrape adds, cluster and namespace where it is set up so.
var target = map[string][]string{"job": nil, "instance": nil, "cluster": nil, "namespace": nil}

// known are all series that lockdog and its rules make.
func known(t *testing.T) map[string]series {
	t.Helper()
	all := map[string]series{}
	for _, m := range telemetry.Metrics {
		s := series{m.Name, maps.Clone(target)}
		for _, l := range m.Labels {
			s.labels[strings.ReplaceAll(string(l.Key), ".", "_")] = l.Values
		}
		all[m.Prometheus] = s // of a histogram the native one
		if m.Kind != "histogram" {
			continue
		}
		all[m.Prometheus+"_sum"], all[m.Prometheus+"_count"] = s, s
		s.labels = maps.Clone(s.labels)
		s.labels["le"] = nil
		all[m.Prometheus+"_bucket"] = s
	}
	for _, r := range readRules(t) {
		if r.record != "" {
			all[r.record] = series{labels: map[string][]string{"cluster": nil, "namespace": nil, "job": nil, "lockdog_group": nil}}
			by := grouping.FindString(r.expr)
			for label, values := range all[ourName.FindString(strings.ReplaceAll(r.expr, by, ""))].labels {
				if strings.Contains(by, label) {
					all[r.record].labels[label] = values
				}
			}
		}
	}
	return all
}

// labels are all labels that any series has.
func labels(all map[string]series) map[string]bool {
	found := map[string]bool{"otel_metric_overflow": true, "__name__": true}
	for _, s := range all {
		for l := range s.labels {
			found[l] = true
		}
	}
	return found
}

var (
	quoted   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	ourName  = regexp.MustCompile(`(?:[a-z_]+:)?\blockdog_\w+(?::\w+)?|\bgroup_job:[\w:]+`)
	selector = regexp.MustCompile(`([a-zA-Z_:][\w:]*)?\s*\{((?:[^{}"]|"(?:[^"\\]|\\.)*")*)\}`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
)

// TestNamesAreOurs: rules, dashboards and runbook ask for nothing that names.go doesn't have.
func TestNamesAreOurs(t *testing.T) {
	t.Parallel()
	all := known(t)
	labels := labels(all)
	for _, q := range slices.Concat(allQueries(t), variableQueries(t), runbookQueries(t)) {
		for _, name := range ourName.FindAllString(quoted.ReplaceAllString(q.expr, `""`), -1) {
			if _, ok := all[name]; !ok && !labels[name] {
				t.Errorf("%s: neither a metric, nor recorded, nor a label: %s", q.where, name)
			}
		}
		for _, s := range selector.FindAllStringSubmatch(q.expr, -1) {
			if of, ok := all[s[1]]; ok {
				checkMatchers(t, q.where, s[1], of, s[2])
			}
		}
		if strings.Contains(q.expr, "redis_") { // the exporter has labels of its own
			continue
		}
		for _, g := range grouping.FindAllStringSubmatch(quoted.ReplaceAllString(q.expr, `""`), -1) {
			for _, label := range strings.FieldsFunc(g[1], func(r rune) bool { return r == ',' || r == ' ' }) {
				if !labels[label] {
					t.Errorf("%s: no series has the label %s", q.where, label)
				}
			}
		}
	}
	for _, name := range ourName.FindAllString(readFile(t, "RUNBOOK.md"), -1) {
		if _, ok := all[name]; !ok && !labels[name] && name != "lockdog_" {
			t.Errorf("RUNBOOK.md: neither a metric, nor recorded, nor a label: %s", name)
		}
	}
}

// checkMatchers: a label that the series doesn't have, or a value that it never has, matches nothing, in silence.
func checkMatchers(t *testing.T, where, name string, s series, text string) {
	t.Helper()
	for _, m := range matcher.FindAllStringSubmatch(text, -1) {
		label, op, value := m[1], m[2], m[3]
		values, ok := s.labels[label]
		if !ok && label != "otel_metric_overflow" {
			t.Errorf("%s: %s has no label %s", where, name, label)
		}
		if values == nil {
			continue
		}
		for _, alternative := range strings.Split(value, "|") {
			re := regexp.QuoteMeta(alternative)
			if strings.HasSuffix(op, "~") {
				re = alternative
			}
			if !slices.ContainsFunc(values, regexp.MustCompile("^(?:"+re+")$").MatchString) {
				t.Errorf("%s: %s is never %q; it is one of %v", where, label, alternative, values)
			}
		}
	}
}

// TestNativeHistograms: what is asked of a histogram is asked of a native one, too, so that users may have either.
func TestNativeHistograms(t *testing.T) {
	t.Parallel()
	series := regexp.MustCompile(`\b(lockdog_\w+)_(?:bucket|sum|count)\b`)
	asked := 0
	for _, q := range allQueries(t) {
		for _, m := range series.FindAllStringSubmatch(q.expr, -1) {
			asked++
			if !regexp.MustCompile(m[1] + `(\{[^}]*\})?\[`).MatchString(q.expr) {
				t.Errorf("%s: %s only as a classic histogram: %s", q.where, m[1], q.expr)
			}
		}
	}
	if asked == 0 {
		t.Error("no histogram is asked for")
	}
}

// TestEveryMetricIsShown: each metric is in a rule or on a dashboard, or nobody will ever look at it.
func TestEveryMetricIsShown(t *testing.T) {
	t.Parallel()
	all := known(t)
	shown := map[string]bool{}
	for _, q := range allQueries(t) {
		for _, name := range ourName.FindAllString(quoted.ReplaceAllString(q.expr, `""`), -1) {
			shown[all[name].metric] = true
		}
	}
	for _, m := range telemetry.Metrics {
		if !shown[m.Name] {
			t.Errorf("no rule and no dashboard uses %s (%s)", m.Name, m.Prometheus)
		}
	}
}

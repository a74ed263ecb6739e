package dashboards_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const runbookURL = "https://github.com/lockdog/lockdog/blob/main/dashboards/RUNBOOK.md"

// rule is a recording or an alerting rule.
type rule struct {
	file, record, alert, expr               string
	severity, summary, description, runbook string
	dashboard                               string
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	return files
}

// readRules reads every rule there is, the template's too.
func readRules(t *testing.T) (all []rule) {
	t.Helper()
	files := slices.Concat(glob(t, "prometheus/*.yaml"), glob(t, "prometheus/*.example"))
	for _, file := range files {
		rules := parseRules(t, file)
		if len(rules) == 0 {
			t.Errorf("%s has no rules", file)
		}
		all = append(all, rules...)
	}
	return all
}

var (
	topKey    = regexp.MustCompile(`^(?: {8}| {6}- )(\w+):(.*)$`)
	nestedKey = regexp.MustCompile(`^ {10}(\w+):(.*)$`)
)

// parseRules reads the plain YAML the rules are written in. That it is YAML, and rules, promtool says. A library for this
// alone would be one more line in every user's go.sum.
func parseRules(t *testing.T, file string) (rules []rule) {
	t.Helper()
	var fields map[string]string // of the rule we are in, as "expr" or "labels/severity"
	var top, path string
	add := func(text string) {
		switch text = strings.Trim(strings.TrimSpace(text), "'"); text {
		case "", "|", ">-":
		default:
			fields[path] = strings.TrimSpace(fields[path] + " " + text)
		}
	}
	var all []map[string]string
	for _, line := range strings.Split(readFile(t, file), "\n") {
		if strings.HasPrefix(line, "      - ") {
			fields = map[string]string{}
			all = append(all, fields)
		}
		switch key, nested := topKey.FindStringSubmatch(line), nestedKey.FindStringSubmatch(line); {
		case fields == nil, strings.HasPrefix(strings.TrimSpace(line), "#"):
		case key != nil:
			top, path = key[1], key[1]
			add(key[2])
		case nested != nil && (top == "labels" || top == "annotations"):
			path = top + "/" + nested[1]
			add(nested[2])
		case strings.HasPrefix(line, "          "):
			add(line)
		case strings.TrimSpace(line) != "": // the next group
			fields = nil
		}
	}
	for _, f := range all {
		r := rule{
			file: file, record: f["record"], alert: f["alert"], expr: f["expr"], severity: f["labels/severity"],
			summary: f["annotations/summary"], description: f["annotations/description"], runbook: f["annotations/runbook_url"],
			dashboard: f["annotations/dashboard_url"],
		}
		if r.expr == "" || (r.record == "") == (r.alert == "") {
			t.Fatalf("%s: can't read this as a rule: %v", file, f)
		}
		rules = append(rules, r)
	}
	return rules
}

func alerts(t *testing.T) (found []rule) {
	t.Helper()
	for _, r := range readRules(t) {
		if r.alert != "" {
			found = append(found, r)
		}
	}
	return found
}

// TestAlertsAreComplete: each says how bad it is, what was measured, what to do first and where to read on, and keeps the
// labels by which alerts are routed. What failed in one cluster must not be lost among the calls of another.
func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	dashboard := regexp.MustCompile(`^/d/lockdog-(?:overview|watchdog)\?(?:var-\w+=\{\{ urlquery \$labels\.\w+ \}\}(?:&|$))+$`)
	for _, a := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning", "info"}, a.severity) {
			t.Errorf("%s: severity %q", a.alert, a.severity)
		}
		if want := runbookURL + "#" + strings.ToLower(a.alert); a.runbook != want {
			t.Errorf("%s: runbook_url %q, want %q", a.alert, a.runbook, want)
		}
		if !dashboard.MatchString(a.dashboard) {
			t.Errorf("%s: dashboard_url %q, want %v", a.alert, a.dashboard, dashboard)
		}
		absent := strings.HasPrefix(a.expr, "absent(") // of which cluster it can't know
		for label, v := range map[string]struct {
			name  string
			known bool
		}{
			"cluster":       {"cluster", !absent},
			"namespace":     {"namespace", !absent},
			"job":           {"job", true},
			"lockdog_group": {"group", strings.Contains(a.summary, "lockdog_group")},
			"instance":      {"instance", strings.Contains(a.summary, "instance")},
		} {
			if strings.Contains(a.dashboard, "var-"+v.name+"={{ urlquery $labels."+label+" }}") != v.known {
				t.Errorf("%s: dashboard_url %q, but its summary is %q", a.alert, a.dashboard, a.summary)
			}
		}
		if a.summary == "" {
			t.Errorf("%s: no summary", a.alert)
		}
		for _, part := range []string{"$value", "$labels.job", " First "} {
			if part == "$value" && (a.alert == "LockdogPubSubDown" || a.alert == "LockdogMetricsAbsent") { // yes or no
				continue
			}
			if !strings.Contains(a.description, part) {
				t.Errorf("%s: the description lacks %q: %s", a.alert, part, a.description)
			}
		}
	}
	for _, r := range readRules(t) {
		for _, by := range regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`).FindAllStringSubmatch(r.expr, -1) {
			if !strings.HasPrefix(by[1], "cluster, namespace, job") {
				t.Errorf("%s: by (%s) drops the cluster, the namespace or the job", r.alert+r.record, by[1])
			}
		}
	}
}

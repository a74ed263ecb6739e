package dashboards_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/telemetry"
)

// promtool runs it, and returns what it printed.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is missing; install it: apt-get install prometheus (or make setup)")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "GOGC=400") // it is short of processor time, not of memory
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestRulesAreValid(t *testing.T) {
	t.Parallel()
	args := slices.Concat([]string{"check", "rules", "--lint=all", "--lint-fatal"}, glob(t, "prometheus/*.yaml"), glob(t, "prometheus/*.example"))
	if out, err := promtool(t, args...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// mustPass has promtool test or check a text as a file.
func mustPass(t *testing.T, text string, command ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, text)
	if out, err := promtool(t, append(command, file)...); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, text)
	}
}

// inYAML is an expression in YAML, of which JSON is a part.
func inYAML(t *testing.T, expr string) string {
	t.Helper()
	text, err := json.Marshal(expr)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRules runs the unit tests of the rules: those of each alert with only that alert and what it is computed from,
// as promtool evaluates every rule there is at each step of each test.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, file := range glob(t, "prometheus/tests/*.yaml") {
		head, tests := testsOf(t, file)
		for alert, text := range tests {
			t.Run(filepath.Base(file)+" "+alert, func(t *testing.T) {
				t.Parallel()
				needed := text
				for range 2 { // what is recorded may be computed from what is recorded
					for _, r := range readRules(t) {
						if r.alert == alert || r.record != "" && strings.Contains(needed, r.record) {
							needed += r.expr
						}
					}
				}
				dir := t.TempDir()
				for _, rules := range slices.Concat(glob(t, "prometheus/*.yaml"), glob(t, "prometheus/*.example")) {
					write(t, filepath.Join(dir, filepath.Base(rules)), only(readFile(t, rules), alert, needed))
				}
				test := filepath.Join(dir, "tests", "test.yaml")
				write(t, test, head+text)
				if out, err := promtool(t, "test", "rules", test); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// nextTest and nextRule are where one begins, in our YAML.
const (
	nextTest = "\n  - name: "
	nextRule = "\n      - "
)

// testsOf are the tests of a file by alert, and what comes before all of them.
func testsOf(t *testing.T, file string) (head string, tests map[string]string) {
	t.Helper()
	all := strings.Split(readFile(t, file), nextTest)
	tests = map[string]string{}
	for _, test := range all[1:] {
		alert, _, _ := strings.Cut(strings.Trim(test, `"`), ":")
		tests[alert] += nextTest + test
	}
	return all[0], tests
}

// only is a file's text with one alert, and those records that are needed.
func only(rules, alert, needed string) string {
	all := strings.Split(rules, nextRule)
	for i, r := range all[1:] {
		rule, group, more := strings.Cut(r, nextTest)
		name, _, _ := strings.Cut(rule, "\n")
		record, ok := strings.CutPrefix(name, "record: ")
		switch {
		case ok && strings.Contains(needed, record), name == "alert: "+alert:
			all[i+1] = nextRule + r
		case more:
			all[i+1] = nextTest + group
		default:
			all[i+1] = ""
		}
	}
	return strings.Join(all, "")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// situations are what each alert has to be tested in.
var situations = []string{"fires", "at the threshold", "no data", "counter reset", "low traffic"}

// TestEveryAlertIsTested: in all situations, and each test asks for the alert it is named after, or it would pass for ever.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	missing := map[string][]string{}
	for _, a := range alerts(t) {
		missing[a.alert] = slices.Clone(situations)
	}
	asked := regexp.MustCompile(`\balertname(?:: |=")(\w+)`)
	seen := map[string]bool{}
	for _, file := range glob(t, "prometheus/tests/*.yaml") {
		for _, test := range strings.Split(readFile(t, file), "\n  - name: ")[1:] {
			head, body, _ := strings.Cut(test, "\n")
			name := strings.Split(head, `"`)
			if len(name) != 3 || seen[name[1]] {
				t.Errorf(`%s: %s: want name: "Alert: situation", unlike all others`, file, head)
				continue
			}
			seen[name[1]] = true
			alert, situation, _ := strings.Cut(name[1], ": ")
			if _, ok := missing[alert]; !ok {
				t.Errorf("%s: %s: there is no such alert", file, name[1])
			}
			if situation == "restart" { // what a gauge has for a counter reset
				situation = "counter reset"
			}
			missing[alert] = slices.DeleteFunc(missing[alert], func(s string) bool { return s == situation })
			all := asked.FindAllStringSubmatch(body, -1)
			for _, a := range all {
				if a[1] != alert {
					t.Errorf("%s: %s: asks for %s", file, name[1], a[1])
				}
			}
			fires := strings.Contains(body, "exp_annotations:")
			quiet := strings.Contains(body, "exp_alerts: []") || strings.Contains(body, "exp_samples: []")
			if len(all) == 0 || situation == "fires" && !fires || situation == "at the threshold" && (fires || !quiet) {
				t.Errorf("%s: %s: does not test that", file, name[1])
			}
		}
	}
	for alert, left := range missing {
		if len(left) > 0 {
			t.Errorf("%s is not tested in these situations: %s", alert, strings.Join(left, ", "))
		}
	}
}

// TestLossesBeforeTheFirstScrape: whatever counts losses, or deadlocks, counts those that came before the first scrape of their series, where
// increase() is blind.
func TestLossesBeforeTheFirstScrape(t *testing.T) {
	t.Parallel()
	const losses = 11 // in the last 5 of 20 minutes
	counted := []telemetry.Metric{telemetry.MetricLosses, telemetry.MetricMembersLost, telemetry.MetricDeadlocks}
	var test strings.Builder
	test.WriteString("tests:\n  - interval: 30s\n    input_series:\n")
	for instance, values := range map[string]string{
		"quiet":     "7x60",
		"loses":     "0x32 1x40",
		"restarted": "5x34 1x40",
		"new":       "_x34 2x2 3x40",
		"newest":    "_x39 4x40", // scraped once
		"gone":      "_x33 2x2 stale",
	} {
		for _, m := range counted {
			fmt.Fprintf(&test, "      - series: %s{job=\"orders\", instance=%q, lockdog_group=\"orders\", lockdog_cause=\"missing\"}\n        values: %s\n",
				m.Prometheus, instance, values)
		}
	}
	test.WriteString("    promql_expr_test:\n")
	asked := 0
	for _, q := range panelQueries(t) {
		if !slices.ContainsFunc(counted, func(m telemetry.Metric) bool { return strings.Contains(q.expr, "increase("+m.Prometheus) }) {
			continue
		}
		asked++
		expr := inYAML(t, "round(sum("+q.expr+"))")
		fmt.Fprintf(&test, "      - expr: %s\n        eval_time: 20m\n        exp_samples: [{labels: '{}', value: %d}]\n", expr, losses)
	}
	if asked < 9 {
		t.Errorf("%d queries count losses", asked)
	}
	mustPass(t, test.String(), "test", "rules")
}

// TestQueriesParse: Prometheus understands the queries of the dashboards and of the runbook. They are put into rules to be
// read by promtool, which says where it doesn't understand one.
func TestQueriesParse(t *testing.T) {
	t.Parallel()
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: queries\n    rules:\n")
	for i, q := range slices.Concat(panelQueries(t), runbookQueries(t)) {
		fmt.Fprintf(&rules, "      - record: query_%d\n        expr: %s\n        labels: {where: %s}\n",
			i, inYAML(t, q.expr), inYAML(t, q.where))
	}
	mustPass(t, rules.String(), "check", "rules")
}

package mixin_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	jsonnet "github.com/google/go-jsonnet"
	"github.com/google/go-jsonnet/formatter"
	"github.com/google/go-jsonnet/linter"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

const dashboards = "../../../dashboards"

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{dashboards}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// render returns the files that the mixin makes with this _config, in jsonnet.
func render(t *testing.T, config string) map[string]string {
	t.Helper()
	vm := jsonnet.MakeVM()
	vm.StringOutput = true
	vm.TLACode("config", config)
	files, err := vm.EvaluateFileMulti(filepath.Join(dashboards, "mixin/render.jsonnet"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCommittedIsRendered(t *testing.T) {
	t.Parallel()
	files := render(t, "{}")
	for name, text := range files {
		if readFile(t, name) != text {
			t.Errorf("dashboards/%s is not what dashboards/mixin makes: change that, and run make mixin", name)
		}
	}
	for _, pattern := range []string{"grafana/*", "prometheus/*.*", "kubernetes/*"} {
		found, err := filepath.Glob(filepath.Join(dashboards, pattern))
		if err != nil || len(found) == 0 {
			t.Errorf("no %s (%v)", pattern, err)
		}
		for _, file := range found {
			if name, err := filepath.Rel(dashboards, file); err != nil || files[name] == "" {
				t.Errorf("dashboards/%s is not in dashboards/mixin (%v)", name, err)
			}
		}
	}
}

func TestSources(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob(filepath.Join(dashboards, "mixin/*sonnet"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources (%v)", err)
	}
	for _, file := range sources {
		text := readFile(t, "mixin", filepath.Base(file))
		if formatted, err := formatter.Format(file, text, formatter.DefaultOptions()); err != nil || formatted != text {
			t.Errorf("%s is not as jsonnetfmt has it (%v)", file, err)
		}
		var problems bytes.Buffer
		if linter.LintSnippet(jsonnet.MakeVM(), &problems, []linter.Snippet{{FileName: file, Code: text}}) {
			t.Error(problems.String())
		}
	}
}

// decode reads YAML as the Kubernetes API server does that is asked for strict validation.
func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// checkRules gives the rules to promtool.
func checkRules(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", "--lint=all", "--lint-fatal", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPrometheusRule: the operator's own types understand it, and its rules are those that are tested as files.
func TestPrometheusRule(t *testing.T) {
	t.Parallel()
	rule := decode[monitoringv1.PrometheusRule](t, readFile(t, "kubernetes/prometheusrule.yaml"))
	if rule.APIVersion != monitoringv1.SchemeGroupVersion.String() || rule.Kind != monitoringv1.PrometheusRuleKind {
		t.Errorf("%s, %s", rule.APIVersion, rule.Kind)
	}
	checkName(t, rule.Name)
	spec := decode[monitoringv1.PrometheusRuleSpec](t, readFile(t, "prometheus/lockdog-rules.yaml"))
	spec.Groups = append(spec.Groups, decode[monitoringv1.PrometheusRuleSpec](t, readFile(t, "prometheus/lockdog-alerts.yaml")).Groups...)
	if !reflect.DeepEqual(rule.Spec, spec) {
		t.Error("its groups are not those of prometheus/lockdog-rules.yaml and lockdog-alerts.yaml")
	}
	text, err := yaml.Marshal(rule.Spec)
	if err != nil {
		t.Fatal(err)
	}
	checkRules(t, string(text))
}

// TestDashboardConfigMaps: one for each dashboard, which Kubernetes accepts and Grafana's sidecar finds.
func TestDashboardConfigMaps(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(dashboards, "grafana/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	maps := strings.Split(readFile(t, "kubernetes/dashboards.yaml"), "\n---\n")
	if len(maps) != len(files) || len(files) == 0 {
		t.Errorf("%d ConfigMaps for %d dashboards", len(maps), len(files))
	}
	for _, text := range maps {
		m := decode[corev1.ConfigMap](t, text+"\n")
		if m.APIVersion != "v1" || m.Kind != "ConfigMap" || m.Labels["grafana_dashboard"] != "1" || len(m.Data) != 1 {
			t.Errorf("%s: %s, %s, labels %v, %d files", m.Name, m.APIVersion, m.Kind, m.Labels, len(m.Data))
		}
		checkName(t, m.Name)
		// kubectl apply keeps what it was given in an annotation, and annotations have room for that.
		if len(text) > 256<<10 {
			t.Errorf("%s has %d bytes: kubectl apply refuses it", m.Name, len(text))
		}
		for name, dashboard := range m.Data {
			if problems := validation.IsConfigMapKey(name); len(problems) > 0 || dashboard != readFile(t, "grafana", name) {
				t.Errorf("%s is not the dashboard of that name %v", name, problems)
			}
		}
	}
}

func checkName(t *testing.T, name string) {
	t.Helper()
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		t.Errorf("%q: %v", name, problems)
	}
}

// config is another value for everything in _config, and a text that then is in what is rendered, once at least.
var config = map[string]struct{ value, rendered string }{
	"selector":            {`'job=~"orders|billing"'`, `job=~"orders|billing"`},
	"clusterLabels":       {`['region', 'environment']`, "by (region, environment, job, lockdog_group)"},
	"redisLabels":         {`['region']`, `redis_up{region=~\"$region\", job=~\"$redis_job\"`},
	"absentJobs":          {`['orders', 'billing']`, `absent(lockdog_acquisitions_total{job="billing"})`},
	"runbookURL":          {`'https://wiki.example/locks'`, "https://wiki.example/locks#lockdoglocklost"},
	"dashboardURL":        {`'https://grafana.example'`, "https://grafana.example/d/lockdog-overview?var-region={{ urlquery $labels.region }}&"},
	"debugURL":            {`'https://debug.example/%s/locks'`, "https://debug.example/${__data.fields.instance}/locks?group="},
	"traces":              {`'tempo'`, `{resource.service.name=\\\"${__field.labels.job}\\\" %26%26 name=\\\"lost ${__field.labels.lockdog_group}\\\"}`},
	"logsLabel":           {`'app'`, `{app=\\\"${__field.labels.job}\\\"}`},
	"ruleLabels":          {`{ release: 'prometheus' }`, `release: "prometheus"`},
	"dashboardLabels":     {`{ dashboards: 'true' }`, `dashboards: "true"`},
	"leaseExpiring":       {"0.701", "lockdog_lease_utilization_worst_ratio{SELECTOR}) > 0.701"},
	"leaseAtRisk":         {"0.501", "lockdog_lease_utilization_worst_ratio{SELECTOR}) > 0.501"},
	"lossesThatPage":      {"7", ">= 7)"},
	"renewalsFailedRatio": {"0.201", "group_job:lockdog_renewals:rate5m > 0.201"},
	"renewalsFailed":      {"101", "300 * group_job:lockdog_renewals_failed:rate5m > 101"},
	"renewalObjective":    {"0.98", "ratio_rate6h > 6 * 0.02"},
	"renewalsLateRatio":   {"0.011", "group_job:lockdog_renewals:rate5m > 0.011"},
	"renewalsLate":        {"102", "300 * group_job:lockdog_renewals_late:rate5m > 102"},
	"watchdogStalled":     {"8", "lockdog_watchdog_tick_age_seconds{SELECTOR}) > 8"},
	"watchdogLag":         {"0.25", "lockdog_watchdog_schedule_lag_seconds_count{SELECTOR}[5m])) > 0.25"},
	"acquireFailingRatio": {"0.51", ") > 0.51"},
	"acquireFailedRatio":  {"0.051", "group_job:lockdog_acquisitions_granted:rate5m) > 0.051"},
	"acquisitionsFailed":  {"103", "300 * group_job:lockdog_acquisitions_failed:rate5m > 103"},
	"heldTooLong":         {"7200", `lockdog_hold_oldest_age_seconds{lockdog_group!~"nightly", SELECTOR}) > 7200`},
	"heldByDesign":        {"'nightly'", `lockdog_group!~"nightly"`},
	"releasesFailedRatio": {"0.012", "group_job:lockdog_releases:rate5m > 0.012"},
	"releasesFailed":      {"104", "300 * group_job:lockdog_releases_failed:rate5m > 104"},
	"waiters":             {"500", "more than 500 for"},
	"messagesMissed":      {"13", "[5m])) > 13"},
}

// TestConfig: whatever is in _config has an effect, the rules are still rules, and nothing is left that looks at other series.
func TestConfig(t *testing.T) {
	t.Parallel()
	fields, err := jsonnet.MakeVM().EvaluateAnonymousSnippet("", "std.objectFields((import '"+dashboards+"/mixin/config.libsonnet')._config)")
	if err != nil {
		t.Fatal(err)
	}
	if want := decode[[]string](t, fields); !slices.Equal(slices.Sorted(maps.Keys(config)), want) {
		t.Errorf("_config has %v", want)
	}
	var code strings.Builder
	for name, c := range config {
		code.WriteString(name + ": " + c.value + ", ")
	}
	files := render(t, "{"+code.String()+"}")
	all := strings.Join(slices.Collect(maps.Values(files)), "")
	for name, c := range config {
		if want := strings.ReplaceAll(c.rendered, "SELECTOR", config["selector"].rendered); !strings.Contains(all, want) {
			t.Errorf("%s: nothing has %s", name, want)
		}
	}
	for name, text := range files {
		if left := regexp.MustCompile(`\bcluster=|\$cluster|\bnamespace=|\$namespace|\(cluster|\$labels\.(?:cluster|namespace)|"type":"jaeger"`).FindString(text); left != "" {
			t.Errorf("%s still has %s", name, left)
		}
		if strings.HasPrefix(name, "grafana/") {
			checkSelectors(t, name, decode[map[string]any](t, text))
		}
	}
	checkRules(t, files["prometheus/lockdog-rules.yaml"])
	checkRules(t, files["prometheus/lockdog-alerts.yaml"])
	decode[monitoringv1.PrometheusRule](t, files["kubernetes/prometheusrule.yaml"])
	checkSelectors(t, "rules", decode[map[string]any](t, files["kubernetes/prometheusrule.yaml"]))
}

// TestNoClusterLabels: a Prometheus that watches one cluster needs none, and queries without matchers have no braces.
func TestNoClusterLabels(t *testing.T) {
	t.Parallel()
	files := render(t, "{clusterLabels: []}")
	for name, text := range files {
		if left := regexp.MustCompile(`\b(?:cluster|namespace)=|\$(?:labels\.)?(?:cluster|namespace)|\{,|, \}|lockdog_\w+\{\}`).FindString(text); left != "" {
			t.Errorf("%s still has %s", name, left)
		}
	}
	checkRules(t, files["prometheus/lockdog-alerts.yaml"])
}

var (
	braces = regexp.MustCompile(`\{[^}]*\}`)
	// What looks like a series and is none: labels, texts, and absent(), whose selector is its own.
	noSeries = regexp.MustCompile(`\b(?:by|on) \([^)]*\)|absent\([^)]*\)|"[^"]*"`)
	series   = regexp.MustCompile(`[\w:]*\{!?\}|[\w:]+`)
)

// checkSelectors wants the selector at each series of lockdog that a query in v asks for.
func checkSelectors(t *testing.T, where string, v any) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			checkSelectors(t, where, e)
		}
	case map[string]any:
		for key, e := range v {
			query, ok := e.(string)
			if !ok || key != "expr" && key != "definition" {
				checkSelectors(t, where+"/"+key, e)
				continue
			}
			query = regexp.MustCompile(`^label_values\((.*), \w+\)$`).ReplaceAllString(query, "$1")
			marked := braces.ReplaceAllStringFunc(query, func(s string) string {
				if strings.Contains(s, config["selector"].rendered) {
					return "{}"
				}
				return "{!}"
			})
			for _, name := range series.FindAllString(noSeries.ReplaceAllString(marked, ""), -1) {
				if name == "{!}" || strings.HasPrefix(name, "lockdog_") && !strings.HasSuffix(name, "{}") {
					t.Errorf("%s: %s is of all jobs: %s", where, name, query)
				}
			}
		}
	}
}

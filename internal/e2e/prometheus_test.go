//go:build e2e

package e2e_test

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// scrapeEvery is how often Prometheus looks at the services and at the rules in the end-to-end test.
const scrapeEvery = time.Second

// prometheus is a Prometheus that runs.
type prometheus struct {
	url   string
	began time.Time
}

// shippedRules are the files of rules of dashboards/.
func shippedRules(t *testing.T) []string {
	t.Helper()
	rules, err := filepath.Glob(fromRoot(t, "dashboards", "prometheus", "*.yaml"))
	if err != nil || len(rules) == 0 {
		t.Fatalf("rules in dashboards/prometheus: %v, %v", rules, err)
	}
	return rules
}

// startPrometheus starts one that scrapes jobs, and loads rules and evaluates them as often.
func startPrometheus(t *testing.T, every time.Duration, jobs map[string][]string, rules []string) *prometheus {
	t.Helper()
	var config strings.Builder
	fmt.Fprintf(&config, "global: {scrape_interval: %v, evaluation_interval: %v}\nrule_files:\n", every, every)
	for _, file := range rules {
		fmt.Fprintf(&config, "  - %q\n", file)
	}
	config.WriteString("scrape_configs:\n")
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		fmt.Fprintf(&config, "  - {job_name: %q, static_configs: [{targets: [%s]}]}\n", job, strings.Join(jobs[job], ", "))
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := freeAddrs(t, 1)[0]
	p := &prometheus{url: "http://" + addr, began: time.Now()}
	launch(t, "prometheus", nil, installed(t, "prometheus", "apt-get update && apt-get install -y prometheus"),
		"--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr,
		"--enable-feature=exemplar-storage", "--log.level=warn").ready(t, p.url+"/-/ready")
	return p
}

// series is one result of a query over a range of time.
type series struct {
	Metric map[string]string
	Values [][2]any // time and the number as text
}

// last is the last value that is a number, and whether there is one.
func (s series) last() (v float64, ok bool) {
	for _, point := range s.Values {
		n, err := strconv.ParseFloat(fmt.Sprint(point[1]), 64)
		if err == nil && n == n {
			v, ok = n, true
		}
	}
	return v, ok
}

// overall evaluates a query over the whole life of this Prometheus, as a dashboard that shows the last minutes does.
func (p *prometheus) overall(t *testing.T, query string) ([]series, error) {
	t.Helper()
	found, err := getJSON[struct{ Result []series }](t, p.url+"/api/v1/query_range", url.Values{
		"query": {query}, "start": {timestamp(p.began)}, "end": {timestamp(time.Now())}, "step": {"2s"},
	})
	return found.Result, err
}

// now evaluates a query that gives one number.
func (p *prometheus) now(t *testing.T, query string) (float64, error) {
	t.Helper()
	found, err := getJSON[struct {
		Result []struct{ Value [2]any }
	}](t, p.url+"/api/v1/query", url.Values{"query": {query}})
	if err != nil {
		return 0, err
	}
	if len(found.Result) != 1 {
		return 0, fmt.Errorf("%s: %d series, want 1", query, len(found.Result))
	}
	return strconv.ParseFloat(fmt.Sprint(found.Result[0].Value[1]), 64)
}

// exemplar is one of those of a series.
type exemplar struct {
	Labels    map[string]string
	Value     string
	Timestamp float64
}

// exemplars are all that a query's series have.
func (p *prometheus) exemplars(t *testing.T, query string) (all []exemplar, err error) {
	t.Helper()
	found, err := getJSON[[]struct{ Exemplars []exemplar }](t, p.url+"/api/v1/query_exemplars", url.Values{
		"query": {query}, "start": {timestamp(p.began)}, "end": {timestamp(time.Now())},
	})
	for _, s := range found {
		all = append(all, s.Exemplars...)
	}
	return all, err
}

// alert is one that is pending or firing.
type alert struct {
	Labels map[string]string
	State  string
}

func (p *prometheus) alerts(t *testing.T) ([]alert, error) {
	t.Helper()
	found, err := getJSON[struct{ Alerts []alert }](t, p.url+"/api/v1/alerts", nil)
	return found.Alerts, err
}

// rule is one as Prometheus sees it after having evaluated it.
type rule struct{ Name, Health, LastError string }

func (p *prometheus) rules(t *testing.T) (all []rule, err error) {
	t.Helper()
	found, err := getJSON[struct{ Groups []struct{ Rules []rule } }](t, p.url+"/api/v1/rules", nil)
	for _, g := range found.Groups {
		all = append(all, g.Rules...)
	}
	return all, err
}

func timestamp(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)
}

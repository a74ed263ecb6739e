//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/dashboards"
)

// ofMembers is the query of what is lost of a Multi or a Quorum, which orders has none of.
const ofMembers = " / Losses by group and cause / B"

// testDashboards asks Prometheus what the dashboards would: each query has to give numbers, now that everything has happened once.
// And no rule may have failed.
func testDashboards(t *testing.T, s *stack, facts *report) {
	all := slices.DeleteFunc(dashboardQueries(t), func(q query) bool { return strings.HasSuffix(q.where, ofMembers) })
	for _, q := range all {
		// A rate shows an event two scrapes later.
		until(t, 10*scrapeEvery, q.where+" has data", func() error { return s.prometheus.hasData(t, q.expr) })
	}
	facts.add("%d queries of the dashboards give data, %d rules are healthy", len(all), s.prometheus.healthyRules(t))
}

// dashboardQueries are all that the dashboards ask.
func dashboardQueries(t *testing.T) (all []query) {
	t.Helper()
	files, err := fs.Glob(dashboards.FS, "grafana/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("dashboards: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(dashboards.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		var d any
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found := queries(d, file)
		if len(found) == 0 {
			t.Errorf("%s has no queries", file)
		}
		all = append(all, found...)
	}
	return all
}

// healthyRules counts the rules, none of which may have failed.
func (p *prometheus) healthyRules(t *testing.T) int {
	t.Helper()
	rules, err := p.rules(t)
	if err != nil || len(rules) == 0 {
		t.Fatalf("rules: %v, %v", rules, err)
	}
	for _, r := range rules {
		if r.Health != "ok" {
			t.Errorf("rule %s: %s: %s", r.Name, r.Health, r.LastError)
		}
	}
	return len(rules)
}

func (p *prometheus) hasData(t *testing.T, expr string) error {
	t.Helper()
	found, err := p.overall(t, expr)
	if err != nil {
		return err
	}
	for _, one := range found {
		if _, ok := one.last(); ok {
			return nil
		}
	}
	return fmt.Errorf("%d series without a number: %s", len(found), expr)
}

type query struct{ where, expr string }

// queries are those of panels, rows and annotations, and those that fill the variables.
func queries(v any, where string) (all []query) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			all = append(all, queries(e, where)...)
		}
	case map[string]any:
		for _, key := range []string{"title", "name", "refId"} {
			if s, ok := v[key].(string); ok {
				where += " / " + s
			}
		}
		for key, e := range v {
			text, ok := e.(string)
			switch {
			case !ok:
				all = append(all, queries(e, where)...)
			case key == "expr":
				all = append(all, query{where, substitute(text)})
			case key == "query" && labelValues.MatchString(text):
				all = append(all, query{where, labelValues.ReplaceAllString(substitute(text), `group by ($2) ($1)`)})
			}
		}
	}
	return all
}

// labelValues is what Grafana fills a variable from: the values of a label of some series.
var labelValues = regexp.MustCompile(`^label_values\((.+), *(\w+)\)$`)

var variable = regexp.MustCompile(`\$\{?(\w+)(?::\w+)?\}?`)

// substitute puts values in the place of Grafana's variables, as it does itself when all is chosen.
func substitute(expr string) string {
	return variable.ReplaceAllStringFunc(expr, func(v string) string {
		switch variable.FindStringSubmatch(v)[1] {
		case "__rate_interval":
			return (20 * scrapeEvery).String()
		case "__interval":
			return (5 * scrapeEvery).String()
		case "__range":
			return (5 * time.Minute).String()
		case "__range_s":
			return "300"
		}
		return ".*"
	})
}

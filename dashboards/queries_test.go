package dashboards_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// query is PromQL of a rule, a dashboard or the runbook.
type query struct{ where, expr string }

// allQueries are those of the rules and the dashboards.
func allQueries(t *testing.T) (all []query) {
	t.Helper()
	for _, r := range readRules(t) {
		all = append(all, query{r.file + ": " + r.record + r.alert, r.expr})
	}
	return append(all, panelQueries(t)...)
}

// panelQueries are those of the dashboards' panels and annotations, with variables substituted.
func panelQueries(t *testing.T) (all []query) {
	t.Helper()
	for _, d := range readDashboards(t) {
		found := len(all)
		walk(d.json, d.name, func(where, key, text string) {
			if key == "expr" {
				all = append(all, query{where, substitute(text)})
			}
		})
		if len(all) == found {
			t.Errorf("%s has no queries", d.name)
		}
	}
	return all
}

// variableQueries are what the dashboards' variables are filled from: label_values(metric, label).
func variableQueries(t *testing.T) (all []query) {
	t.Helper()
	for _, d := range readDashboards(t) {
		walk(d.json, d.name, func(where, key, text string) {
			if (key == "query" || key == "definition") && strings.Contains(text, "(") {
				all = append(all, query{where, substitute(text)})
			}
		})
	}
	return all
}

// runbookQueries are those the runbook tells people to run.
func runbookQueries(t *testing.T) (all []query) {
	t.Helper()
	for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(readFile(t, "RUNBOOK.md"), -1) {
		if strings.Contains(code[1], "lockdog_") && strings.Contains(code[1], "(") || strings.HasPrefix(code[1], "group_job:") {
			all = append(all, query{"RUNBOOK.md", code[1]})
		}
	}
	if len(all) == 0 {
		t.Error("RUNBOOK.md has no queries")
	}
	return all
}

type dashboard struct {
	name string
	json any
}

func readDashboards(t *testing.T) (all []dashboard) {
	t.Helper()
	for _, file := range glob(t, "grafana/*.json") {
		d := dashboard{name: filepath.Base(file)}
		if err := json.Unmarshal([]byte(readFile(t, file)), &d.json); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, d)
	}
	return all
}

// walk calls found for every text in v, with its key, and where it is: the titles and names on the way there.
func walk(v any, where string, found func(where, key, text string)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			walk(e, where, found)
		}
	case map[string]any:
		for _, key := range []string{"title", "name", "refId"} {
			if s, ok := v[key].(string); ok {
				where += " / " + s
			}
		}
		for key, e := range v {
			if s, ok := e.(string); ok {
				found(where, key, s)
			} else {
				walk(e, where, found)
			}
		}
	}
}

var variable = regexp.MustCompile(`\$\{(\w+)(?::\w+)?\}|\$(\w+)`)

// substitute puts values in the place of Grafana's variables.
func substitute(expr string) string {
	return variable.ReplaceAllStringFunc(expr, func(v string) string {
		m := variable.FindStringSubmatch(v)
		switch m[1] + m[2] {
		case "__rate_interval", "__interval", "__range":
			return "5m"
		case "__range_s":
			return "300"
		}
		return ".*"
	})
}

package dashboards_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/telemetry"
)

// board is what the tests look at of a dashboard.
type board struct {
	UID        string
	Panels     []panel
	Templating struct{ List []templateVariable }
}

type templateVariable struct {
	Name, Type, AllValue string
	Multi, IncludeAll    bool
}

type dataLink struct{ Title, URL string }

type panel struct {
	Type, Title, Description string
	Targets                  []struct {
		Expr, LegendFormat string
		Exemplar           bool
	}
	FieldConfig struct {
		Defaults struct {
			Unit              string
			Color, Thresholds json.RawMessage
			Links             []dataLink
		}
		Overrides []struct{ Properties json.RawMessage }
	}
}

func readBoards(t *testing.T) map[string]board {
	t.Helper()
	all := map[string]board{}
	for _, file := range glob(t, "grafana/*.json") {
		var b board
		if err := json.Unmarshal([]byte(readFile(t, file)), &b); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = b
	}
	return all
}

// eachPanel calls f for every panel that is not a row.
func eachPanel(t *testing.T, f func(where string, p panel)) {
	t.Helper()
	for name, b := range readBoards(t) {
		for _, p := range b.Panels {
			if p.Type != "row" {
				f(name+": "+p.Title, p)
			}
		}
	}
}

func TestDashboards(t *testing.T) {
	t.Parallel()
	boards := readBoards(t)
	if len(boards) != 3 {
		t.Errorf("%d dashboards", len(boards))
	}
	for name, b := range boards {
		if b.UID != name { // alerts link to it
			t.Errorf("%s: uid %s", name, b.UID)
		}
		variables := ""
		for _, v := range b.Templating.List {
			variables += v.Name + " "
			if many := v.Type != "datasource"; v.Multi != many || v.IncludeAll != many || many && v.AllValue != ".*" {
				t.Errorf("%s: variable %+v", name, v)
			}
		}
		if !strings.HasPrefix(variables, "datasource cluster namespace job instance group ") {
			t.Errorf("%s: variables %s", name, variables)
		}
	}
}

// TestEveryQueryHasTheVariables: a dashboard that is narrowed to a cluster or namespace shows nothing of the others. The Redis exporter may run in
// a namespace of its own.
func TestEveryQueryHasTheVariables(t *testing.T) {
	t.Parallel()
	for _, d := range readDashboards(t) {
		walk(d.json, d.name, func(where, key, text string) {
			if key != "expr" {
				return
			}
			for _, s := range selector.FindAllStringSubmatch(text, -1) {
				want := `cluster=~"$cluster", namespace=~"$namespace", job=~"$job", instance=~"$instance"`
				if strings.HasPrefix(s[1], "redis_") {
					want = `cluster=~"$cluster", job=~"$redis_job", instance=~"$redis_instance"`
				}
				if !strings.HasPrefix(s[2], want) {
					t.Errorf("%s: %s has not %s", where, s[0], want)
				}
			}
			if bare := regexp.MustCompile(`\b(?:lockdog|redis)_\w+\[`).FindString(text); bare != "" {
				t.Errorf("%s: %s is of all clusters", where, bare)
			}
		})
	}
}

// TestDataLinks: what is shown by group leads to traces and logs of the group, what is shown by instance to its debug page. A link uses
// only labels that the query keeps, and asks for spans that there are.
func TestDataLinks(t *testing.T) {
	t.Parallel()
	kept := regexp.MustCompile(`\bby \(([\w, ]+)\)`)
	value := regexp.MustCompile(`\$\{__(?:field\.labels|data\.fields)\.(\w+)\}`)
	tables := 0
	eachPanel(t, func(where string, p panel) {
		links := slices.Clone(p.FieldConfig.Defaults.Links)
		for _, o := range p.FieldConfig.Overrides {
			var properties []struct {
				ID    string
				Value json.RawMessage
			}
			if err := json.Unmarshal(o.Properties, &properties); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			for _, property := range properties {
				var more []dataLink
				if property.ID == "links" {
					if err := json.Unmarshal(property.Value, &more); err != nil {
						t.Fatalf("%s: %v", where, err)
					}
				}
				links = append(links, more...)
			}
		}
		leads := map[string]bool{}
		for _, l := range links {
			leads[checkLink(t, where, l)] = true
			for _, label := range value.FindAllStringSubmatch(l.URL, -1) {
				for _, target := range p.Targets {
					if by := kept.FindStringSubmatch(target.Expr); by == nil || !slices.Contains(strings.Split(by[1], ", "), label[1]) {
						t.Errorf("%s: link %q needs %s, which %s drops", where, l.Title, label[1], target.Expr)
					}
				}
			}
		}
		for _, target := range p.Targets {
			group := strings.Contains(target.LegendFormat, "{{lockdog_group}}") || p.Type == "table"
			instance := target.LegendFormat == "{{instance}}" && !strings.Contains(target.Expr, "label_replace") || p.Type == "table"
			if leads["jaeger"] != group || leads["loki"] != group || leads["debug page"] != instance {
				t.Errorf("%s: leads to %v", where, leads)
			}
		}
		if p.Type == "table" {
			tables++
		}
	})
	if tables == 0 {
		t.Error("no table leads from a group and an instance to all that is known of it")
	}
}

// checkLink returns what the link leads to: jaeger, loki or debug page.
func checkLink(t *testing.T, where string, l dataLink) string {
	t.Helper()
	if regexp.MustCompile(`^http://\$\{__\w+\.\w+\.instance\}/debug/locks(\?group=\$\{__data\.fields\.lockdog_group\})?$`).MatchString(l.URL) {
		return "debug page"
	}
	query, ok := strings.CutPrefix(l.URL, "/explore?schemaVersion=1&panes=")
	var panes map[string]struct {
		Datasource string
		Queries    []struct {
			Datasource               struct{ Type, UID string }
			Service, Operation, Expr string
		}
	}
	if err := json.Unmarshal([]byte(query), &panes); !ok || err != nil || len(panes["a"].Queries) != 1 {
		t.Fatalf("%s: %s: %v", where, l.URL, err)
	}
	q := panes["a"].Queries[0]
	source := map[string]string{"jaeger": "${traces}", "loki": "${logs}"}[q.Datasource.Type]
	if source == "" || q.Datasource.UID != source || panes["a"].Datasource != source {
		t.Errorf("%s: %s asks %s", where, l.Title, q.Datasource.UID)
	}
	if name, _, ok := strings.Cut(q.Operation, " $"); q.Datasource.Type == "jaeger" &&
		(!ok || !slices.ContainsFunc(telemetry.Spans, func(s telemetry.Span) bool { return s.Name == name && !s.Plain })) {
		t.Errorf("%s: no span is called %q", where, q.Operation)
	}
	return q.Datasource.Type
}

// TestPanelsExplainThemselves: each says which question it answers, what is normal, and which alert belongs to it.
func TestPanelsExplainThemselves(t *testing.T) {
	t.Parallel()
	eachPanel(t, func(where string, p panel) {
		if p.FieldConfig.Defaults.Unit == "" {
			t.Errorf("%s: no unit", where)
		}
		if !strings.Contains(p.Description, "?") || !strings.Contains(p.Description, "Normal: ") {
			t.Errorf("%s: no question, or not what is normal: %s", where, p.Description)
		}
		for _, a := range regexp.MustCompile(`Lockdog\w+`).FindAllString(p.Description, -1) {
			if !isAlert(t, a) {
				t.Errorf("%s: there is no alert %s", where, a)
			}
		}
	})
}

// TestPanelQueries: what is asked of a counter is how much it grew, in a window that Grafana chooses, and a panel says what it leaves out and
// where its dots lead.
func TestPanelQueries(t *testing.T) {
	t.Parallel()
	window := regexp.MustCompile(`\[([^\]]*)\]( offset \$)?`)
	counter := regexp.MustCompile(`\b\w+_(total|bucket|sum|count)\{`)
	growth := regexp.MustCompile(`\b(rate|increase|last_over_time|resets)\($`)
	eachPanel(t, func(where string, p panel) {
		exemplars, ungrouped := false, false
		for _, target := range p.Targets {
			exemplars = exemplars || target.Exemplar
			ungrouped = ungrouped || strings.Contains(target.Expr, "lockdog_") && !strings.Contains(target.Expr, "$group")
			for _, m := range window.FindAllStringSubmatch(target.Expr, -1) {
				if m[1] != "$__rate_interval" && m[1] != "$__range" && m[0] != "[30m] offset $" {
					t.Errorf("%s: window %s", where, m[1])
				}
			}
			for _, m := range counter.FindAllStringIndex(target.Expr, -1) {
				if !growth.MatchString(target.Expr[:m[0]]) {
					t.Errorf("%s: a counter as it is: %s", where, target.Expr)
				}
			}
		}
		if said := strings.Contains(p.Description, "All groups."); said != ungrouped {
			t.Errorf("%s: shows all groups: %v, says so: %v", where, ungrouped, said)
		}
		if said := strings.Contains(p.Description, "exemplars"); said != exemplars {
			t.Errorf("%s: has exemplars: %v, says so: %v", where, exemplars, said)
		}
	})
}

// TestNoDataIsGrey: a Prometheus that has nothing shows neither zeros nor colours that mean something. Grafana gives a tile without data its
// lowest colour.
func TestNoDataIsGrey(t *testing.T) {
	t.Parallel()
	const grey = `{ "color": "#808080", "value": null }`
	eachPanel(t, func(where string, p panel) {
		for _, target := range p.Targets {
			if strings.Contains(target.Expr, "vector(") {
				t.Errorf("%s: a number without data: %s", where, target.Expr)
			}
		}
		if d := p.FieldConfig.Defaults; p.Type == "stat" {
			if !strings.Contains(string(d.Color), `"thresholds"`) || !strings.Contains(string(d.Thresholds), grey) {
				t.Errorf("%s: not grey without data: %s, %s", where, d.Color, d.Thresholds)
			}
		}
	})
}

package doccheck_test

import (
	"fmt"
	"go/ast"
	"go/printer"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockdog/lockdog/telemetry"
)

// reference has the tables of names.
const reference = "docs/TELEMETRY.md"

// compare prints the whole table when it isn't what the code says.
func compare(t *testing.T, name string, want []string) {
	t.Helper()
	text := strings.Join(want, "\n")
	if got := block(t, reference, name); got != text {
		t.Errorf("%s, <!-- %s -->: want\n\n%s\n", reference, name, text)
	}
}

func code(s string) string { return "`" + s + "`" }

// TestMetricsTable: telemetry.Metrics is the source.
func TestMetricsTable(t *testing.T) {
	t.Parallel()
	rows := []string{"| metric | in Prometheus | kind, unit | attributes | meaning |", "|---|---|---|---|---|"}
	for _, m := range telemetry.Metrics {
		var labels []string
		for _, l := range m.Labels {
			label := code(string(l.Key))
			if l.Values != nil {
				label += "=" + strings.Join(l.Values, " ")
			}
			labels = append(labels, label)
		}
		rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s, %s | %s | %s |",
			m.Name, m.Prometheus, m.Kind, m.Unit, strings.Join(labels, ", "), m.Description))
	}
	compare(t, "metrics", rows)
}

// TestSpansTable: telemetry.Spans is the source.
func TestSpansTable(t *testing.T) {
	t.Parallel()
	rows := []string{"| span | parent | meaning | attributes |", "|---|---|---|---|"}
	for _, s := range telemetry.Spans {
		name := s.Name + " <group>"
		if s.Plain {
			name = s.Name
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", name, s.Parent, s.Description, keys(s.Attributes)))
	}
	compare(t, "spans", rows)
}

// TestEventsTable: telemetry.Spans is the source.
func TestEventsTable(t *testing.T) {
	t.Parallel()
	rows := []string{"| span | event | meaning | attributes |", "|---|---|---|---|"}
	for _, s := range telemetry.Spans {
		for _, e := range s.Events {
			rows = append(rows, fmt.Sprintf("| `%s <group>` | `%s` | %s | %s |", s.Name, e.Name, e.Description, keys(e.Attributes)))
		}
	}
	compare(t, "events", rows)
}

func keys(all []attribute.Key) string {
	var names []string
	for _, k := range all {
		names = append(names, code(strings.TrimPrefix(string(k), "lockdog.")))
	}
	return strings.Join(names, " ")
}

// TestLogsTable: telemetry.Logs is the source.
func TestLogsTable(t *testing.T) {
	t.Parallel()
	rows := []string{"| message | level | meaning |", "|---|---|---|"}
	for _, l := range telemetry.Logs {
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", l.Message, l.Level, l.Description))
	}
	compare(t, "logs", rows)
}

// TestOptionsTable: every exported function of package lock that returns an Option or a LockOption has a row with its very
// signature, below the right heading; what the row says of it is prose.
func TestOptionsTable(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"LockOption", "Option"} {
		want := options(t, kind)
		if len(want) == 0 {
			t.Fatalf("package lock has no %s", kind)
		}
		var got []string
		for _, row := range regexp.MustCompile("(?m)^\\| `(.+?)` \\|.*[^ |\n].*\\|$").FindAllStringSubmatch(block(t, "docs/CONFIGURATION.md", kind), -1) {
			got = append(got, row[1])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("docs/CONFIGURATION.md, <!-- %s -->: has\n%s\nwant\n%s", kind, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// options are the signatures of the functions that return the type, sorted.
func options(t *testing.T, kind string) []string {
	t.Helper()
	var found []string
	fset, files := parse(t, "lock")
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !fn.Name.IsExported() || fn.Type.Results == nil {
				continue
			}
			result, ok := fn.Type.Results.List[0].Type.(*ast.Ident)
			if !ok || result.Name != kind {
				continue
			}
			var params []string
			for _, p := range fn.Type.Params.List {
				var typ strings.Builder
				if err := printer.Fprint(&typ, fset, p.Type); err != nil {
					t.Fatal(err)
				}
				for _, name := range p.Names {
					params = append(params, name.Name+" "+typ.String())
				}
			}
			found = append(found, fn.Name.Name+"("+strings.Join(params, ", ")+")")
		}
	}
	slices.Sort(found)
	return found
}

// TestTablesRender looks for rows of tables whose number of cells isn't that of the heading: the rest of such a row isn't shown.
func TestTablesRender(t *testing.T) {
	t.Parallel()
	for _, page := range append(pages(t), "CONTRIBUTING.md", "CHANGELOG.md", "dashboards/RUNBOOK.md") {
		cells, code := 0, false // of the table that a line belongs to, 0 outside of one; within a block of code
		for n, line := range strings.Split(readFile(t, page), "\n") {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if code || !strings.HasPrefix(line, "|") {
				cells = 0
				continue
			}
			got := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") - 1
			switch {
			case !strings.HasSuffix(line, "|"):
				t.Errorf("%s:%d: a row of a table has no | at its end", page, n+1)
			case cells == 0:
				cells = got
			case got != cells:
				t.Errorf("%s:%d: a row of %d cells in a table of %d", page, n+1, got, cells)
			}
		}
	}
}

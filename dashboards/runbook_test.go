package dashboards_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/telemetry"
)

// TestRunbookSections: a section for each alert, in the order of the rules, and none for what is no alert.
func TestRunbookSections(t *testing.T) {
	t.Parallel()
	var want, got []string
	rules := alerts(t)
	slices.SortStableFunc(rules, func(a, b rule) int { // the template comes last
		return strings.Compare(filepath.Ext(b.file), filepath.Ext(a.file))
	})
	for _, a := range rules {
		want = append(want, a.alert)
	}
	parts := []string{"**Means:**", "**Users feel:**", "**Confirm:**", "**Do", "**Don't:**"}
	for _, section := range strings.Split(readFile(t, "RUNBOOK.md"), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		if !strings.HasPrefix(title, "Lockdog") {
			continue
		}
		got = append(got, title)
		for _, part := range parts {
			i := strings.Index(text, "\n"+part)
			if i < 0 {
				t.Errorf("%s: no %s, or not in the order %v", title, part, parts)
				continue
			}
			text = text[i+1:]
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("RUNBOOK.md has sections\n%s\nthe alerts are\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestRunbookInhibition: the table of what each page silences has every page, and is what our Alertmanager does.
func TestRunbookInhibition(t *testing.T) {
	t.Parallel()
	names := regexp.MustCompile(`Lockdog\w+`)
	got, want := map[string][]string{}, map[string][]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| \[(\w+)\]\(#\w+\) \|.*\| (.+) \|$`).FindAllStringSubmatch(readFile(t, "RUNBOOK.md"), -1) {
		got[row[1]] = names.FindAllString(row[2], -1)
	}
	inhibited := regexp.MustCompile(`source_matchers: \[(.*)\]\n *target_matchers: \[(.*)\]`)
	for _, r := range inhibited.FindAllStringSubmatch(readFile(t, "compose/alertmanager.yml"), -1) {
		for _, source := range names.FindAllString(r[1], -1) {
			want[source] = names.FindAllString(r[2], -1)
		}
	}
	for _, a := range alerts(t) {
		if _, ok := got[a.alert]; ok != (a.severity == "critical") {
			t.Errorf("%s is %s; in the table: %v", a.alert, a.severity, ok)
		}
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("RUNBOOK.md says\n%v\nalertmanager.yml does\n%v", got, want)
	}
}

// TestRunbookTelemetry: the attributes, spans, logs and kinds of errors it names are those of the library.
func TestRunbookTelemetry(t *testing.T) {
	t.Parallel()
	text := readFile(t, "RUNBOOK.md")
	values := map[string][]string{}
	for _, s := range telemetry.Spans {
		for _, a := range s.Attributes {
			values[string(a)] = nil
		}
	}
	for _, m := range telemetry.Metrics {
		for _, l := range m.Labels {
			values[string(l.Key)] = append(values[string(l.Key)], l.Values...)
		}
	}
	if strings.Contains(text, "error=true") {
		t.Error("Jaeger 2 with its storage in memory finds no span by error=true: the status is no tag there")
	}
	values[string(telemetry.KeyTakeover)] = values[string(telemetry.KeyReason)]
	for _, tag := range regexp.MustCompile("`(lockdog\\.[a-z._]+)(?:=([^`]*))?`").FindAllStringSubmatch(text, -1) {
		allowed, ok := values[tag[1]]
		if !ok {
			t.Errorf("no span has the attribute %s", tag[1])
		}
		if tag[2] != "" && allowed != nil && !slices.Contains(allowed, tag[2]) {
			t.Errorf("%s is never %q", tag[1], tag[2])
		}
	}
	for _, operation := range regexp.MustCompile("operation\\s+`(.+?)`").FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(telemetry.Spans, func(s telemetry.Span) bool {
			return operation[1] == s.Name+" orders" && !s.Plain || operation[1] == s.Name && s.Plain
		}) {
			t.Errorf("no span is called %q", operation[1])
		}
	}
	messages := regexp.MustCompile("(?s)log\\s+lines?\\s+`(.+?)`|Logs:\\s+`(.+?)`").FindAllStringSubmatch(text, -1)
	for _, m := range messages {
		message := strings.ReplaceAll(m[1]+m[2], "\n", " ")
		if !slices.ContainsFunc(telemetry.Logs, func(l telemetry.Log) bool { return l.Message == message }) &&
			message != "lockdog: survived a panic" && !strings.HasPrefix(message, "lockdog: Redis refuses") { // package lock's own
			t.Errorf("no log record says %q", message)
		}
	}
	if len(messages) == 0 {
		t.Error("no log lines found")
	}
	_, table, _ := strings.Cut(text, "## Kinds of errors")
	var kinds []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		kinds = append(kinds, row[1])
	}
	if want := values["error.type"]; !slices.Equal(kinds, want) {
		t.Errorf("kinds of errors %v, want %v", kinds, want)
	}
}

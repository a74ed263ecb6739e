package doccheck_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/telemetry"
)

// TestVersion compares the version that spans and metrics carry with the newest release of the changelog. One that isn't tagged yet has no date.
func TestVersion(t *testing.T) {
	t.Parallel()
	releases := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) - (?:\d{4}-\d\d-\d\d|unreleased)$`).FindStringSubmatch(readFile(t, "CHANGELOG.md"))
	if releases == nil {
		t.Fatal("CHANGELOG.md has no release like ## 1.2.3 - 2006-01-02, or - unreleased")
	}
	if releases[1] != telemetry.Version {
		t.Errorf("CHANGELOG.md's newest release is %s, telemetry.Version is %s", releases[1], telemetry.Version)
	}
}

// TestPathsExist looks for the files and folders that CONTRIBUTING.md names.
func TestPathsExist(t *testing.T) {
	t.Parallel()
	paths := regexp.MustCompile("`([a-zA-Z.]+(?:/[\\w.<>*-]+)+|[A-Z]+\\.md)`").FindAllStringSubmatch(readFile(t, "CONTRIBUTING.md"), -1)
	if len(paths) < 20 {
		t.Errorf("only %d paths were found", len(paths))
	}
	for _, m := range paths {
		glob(t, strings.ReplaceAll(m[1], "<kind>", "*")) // fails if there is none
	}
}

// TestNamesExist looks for the tests, targets of make and alerts that the documents name.
func TestNamesExist(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	for _, pattern := range []string{"*/*_test.go", "*/*/*_test.go", "*/*/*/*_test.go"} {
		for _, file := range glob(t, pattern) {
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(readFile(t, file), -1) {
				tests[m[1]] = true
			}
		}
	}
	makefile, alerts := readFile(t, "Makefile"), readFile(t, "dashboards/prometheus/lockdog-alerts.yaml")
	for _, doc := range append(pages(t), "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "dashboards/pictures/README.md") {
		text := readFile(t, doc)
		for pattern, exists := range map[string]func(name string) bool{
			"`(Test\\w+)`": func(name string) bool { return tests[name] },
			"(?m)(?:`|^    )make ([a-z0-9-]+)": func(name string) bool {
				return strings.Contains(makefile, "\n"+name+":")
			},
			"`(Lockdog[A-Z]\\w+)`": func(name string) bool {
				return strings.Contains(alerts, "alert: "+name+"\n")
			},
		} {
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
				if !exists(m[1]) {
					t.Errorf("%s names %s, which doesn't exist", doc, m[0])
				}
			}
		}
	}
}

// TestWorkflow holds GitHub's CI to what every CI runs, with actions that can't change under us.
func TestWorkflow(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	all := ""
	for _, file := range glob(t, ".github/workflows/*.yml") {
		text := readFile(t, file)
		all += text
		for _, m := range regexp.MustCompile(`(?m)^\s*-? ?uses: (.*)$`).FindAllStringSubmatch(text, -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %s: want owner/name@<commit> # v1.2.3", file, m[1])
			}
		}
	}
	if !strings.Contains(all, "- run: .ci/run\n") {
		t.Error("no workflow runs .ci/run")
	}
}

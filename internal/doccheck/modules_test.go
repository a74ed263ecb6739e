package doccheck_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestModules compares docs/FAQ.md's list of modules that package lock pulls into a program with what it imports.
func TestModules(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./lock")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(out))
	slices.Sort(want)
	want = slices.Compact(want)
	if got := strings.Fields(block(t, "docs/FAQ.md", "modules")); !slices.Equal(got, want) {
		t.Errorf("docs/FAQ.md, <!-- modules -->: want\n\n    %s\n", strings.Join(want, "\n    "))
	}
}

package doccheck_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/telemetry"
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

// TestCommandIsApart: the command is a module, so that what its screen and flags need is in the module graph of no
// program that imports lock. `go install` of a version refuses replace directives, so go.work brings in the root module.
func TestCommandIsApart(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"charm.land/", "github.com/charmbracelet/", "github.com/spf13/", "github.com/creack/pty"} {
		if strings.Contains(readFile(t, "go.sum"), path) { // has all modules of the graph
			t.Errorf("go.sum has %s: is it still used outside of cmd/lockdog?", path)
		}
	}
	mod := readFile(t, "cmd/lockdog/go.mod")
	if want := "\tgithub.com/lockdog/lockdog v" + telemetry.Version + " "; !strings.Contains(mod, want) || strings.Contains(mod, "replace") {
		t.Errorf("cmd/lockdog/go.mod: want %q, and no replace directive:\n%s", want, mod)
	}
	beside, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/lockdog/lockdog")
	list.Dir = filepath.Join(root, "cmd/lockdog")
	if out, err := list.Output(); err != nil || strings.TrimSpace(string(out)) != beside {
		t.Errorf("cmd/lockdog is built against %q, want %s: %v", out, beside, err)
	}
}

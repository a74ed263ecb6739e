package lockdebug_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The page costs a program that serves HTTP at most 1 MB. With html/template it was 12 MB: that calls methods by name, so that the linker
// keeps those that nobody calls. `make nightly` measures it, which compiles two programs.
func TestProgramsStaySmall(t *testing.T) {
	t.Parallel()
	deps, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil || strings.Contains(string(deps), "\ntext/template\n") {
		t.Errorf("%v, or the page needs text/template:\n%s", err, deps)
	}
	if os.Getenv("LOCKDOG_FULL") == "" {
		return
	}
	size := func(tags string) int64 {
		path := filepath.Join(t.TempDir(), "program")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-tags="+tags, "-o", path, "./testdata/size")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if larger := size("debugpage") - size(""); larger > 1<<20 {
		t.Errorf("the page makes a program %d bytes larger", larger)
	}
}

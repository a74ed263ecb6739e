package lockdebug_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The page costs a program that serves HTTP at most 1 MB. With html/template it was 12 MB: that calls methods by name, so that the linker
// keeps those that nobody calls.
func TestProgramsStaySmall(t *testing.T) {
	t.Parallel()
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
	without, with := size(""), size("debugpage")
	t.Logf("%d bytes without the page, %d with it", without, with)
	if with-without > 1<<20 {
		t.Errorf("the page makes a program %d bytes larger", with-without)
	}
}

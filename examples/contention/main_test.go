package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPprofNamesTheGuiltyLine runs the program as its comment says.
func TestPprofNamesTheGuiltyLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, written := filepath.Join(dir, "contention"), filepath.Join(dir, "locks.pb.gz")
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run("go", "build", "-o", program, ".")
	run(program, written)
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(source), "m.Lock(ctx)")
	guilty := fmt.Sprintf("contention/main.go:%d", strings.Count(before, "\n")+1)
	for _, c := range []struct {
		args []string
		want string // of the first line of the table
	}{
		{[]string{"-top"}, "main.report"},
		{[]string{"-top", "-lines"}, guilty},
		{[]string{"-top", "-sample_index=wait"}, "main.book"},
		{[]string{"-top", "-tagfocus=ledger", "-sample_index=waits"}, "main.book"},
	} {
		out := run("go", append(append([]string{"tool", "pprof"}, c.args...), written)...)
		_, table, _ := strings.Cut(out, "flat%")
		lines := strings.Split(table, "\n")
		if len(lines) < 2 || !strings.Contains(lines[1], c.want) {
			t.Errorf("pprof %v: want %s first\n%s", c.args, c.want, out)
		}
	}
}

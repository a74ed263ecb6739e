package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/pprof/profile"
	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/internal/redistest"
)

// full is for `make nightly`.
var full = os.Getenv("LOCKDOG_FULL") != ""

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// top returns the line of code with most of a value: the first row of `go tool pprof -top -lines`.
func top(p *profile.Profile, value string) string {
	i := slices.IndexFunc(p.SampleType, func(s *profile.ValueType) bool { return s.Type == value })
	flat := map[string]int64{}
	for _, s := range p.Sample {
		line := s.Location[0].Line[0]
		flat[fmt.Sprintf("%s %s:%d", line.Function.Name, filepath.Base(line.Function.Filename), line.Line)] += s.Value[i]
	}
	return slices.MaxFunc(slices.Collect(maps.Keys(flat)), func(a, b string) int { return int(flat[a] - flat[b]) })
}

// The profile names the line that makes everybody wait, and who waits.
func TestProfileNamesTheGuiltyLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		written := filepath.Join(t.TempDir(), "locks.pb.gz")
		if err := run(t.Context(), redistest.StartFake(t).Client(t), written); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(written)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		p, err := profile.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile("main.go")
		if err != nil {
			t.Fatal(err)
		}
		before, _, _ := strings.Cut(string(source), "m.Lock(ctx)")
		guilty := fmt.Sprintf(".report main.go:%d", strings.Count(before, "\n")+1)
		if got := top(p, p.DefaultSampleType); !strings.HasSuffix(got, guilty) {
			t.Errorf("most held by %s, want %s", got, guilty)
		}
		for _, value := range []string{"wait", "waits"} {
			if got := top(p, value); !strings.Contains(got, ".book ") {
				t.Errorf("most %s of %s, want book", value, got)
			}
		}
		for _, s := range p.Sample {
			if !slices.Equal(s.Label["group"], []string{"ledger"}) {
				t.Errorf("labels %v", s.Label)
			}
		}
	})
}

// In the long form the program runs as its comment says, and pprof, which is built for it, reads what it has written.
func TestPprof(t *testing.T) {
	t.Parallel()
	if !full {
		return
	}
	written := filepath.Join(t.TempDir(), "locks.pb.gz")
	command := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	command("run", ".", written)
	for want, args := range map[string][]string{"main.report": nil, "main.book": {"-tagfocus=ledger", "-sample_index=wait"}} {
		out := command(append(append([]string{"tool", "pprof", "-top"}, args...), written)...)
		_, table, _ := strings.Cut(out, "flat%")
		if lines := strings.Split(table, "\n"); len(lines) < 2 || !strings.Contains(lines[1], want) {
			t.Errorf("pprof %v: want %s first\n%s", args, want, out)
		}
	}
}

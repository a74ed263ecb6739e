package dashboards_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/lockdog/lockdog/dashboards"
)

// Provisioning: Prometheus's rule_files and Grafana's provider point to where the files were written.
func ExampleFS() {
	dir, err := os.MkdirTemp("", "lockdog")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.CopyFS(dir, dashboards.FS); err != nil {
		fmt.Println(err)
		return
	}
	rules, err := filepath.Glob(filepath.Join(dir, "prometheus", "*.yaml"))
	fmt.Println(len(rules), err)
	// Output: 2 <nil>
}

// TestFS: FS has the product's files, every one of them, and no test.
func TestFS(t *testing.T) {
	t.Parallel()
	want := []string{"RUNBOOK.md"}
	for _, pattern := range []string{"grafana/*.json", "prometheus/*.yaml", "prometheus/*.example"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Errorf("no file matches %s", pattern)
		}
		want = append(want, files...)
	}
	if err := fstest.TestFS(dashboards.FS, want...); err != nil {
		t.Error(err)
	}
	var got []string
	err := fs.WalkDir(dashboards.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("FS has %v, want %v", got, want)
	}
}

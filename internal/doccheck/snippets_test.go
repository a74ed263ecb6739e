package doccheck_test

import (
	"fmt"
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/dashboards"
)

// frame is what pieces of code stand in that are no whole file: a function with what they use from around them.
const frame = `package p

import (
%s)

func _(ctx context.Context, rdb *redis.Client, tracers trace.TracerProvider, meters metric.MeterProvider, logger *slog.Logger) error {
%s%s%s}

var errBusy = errors.New("busy")

func ship(context.Context) error { return errBusy }
`

// packages are those that the pieces and the frame may use.
var packages = map[string]string{
	"context":   "context",
	"errors":    "errors",
	"fmt":       "fmt",
	"time":      "time",
	"http":      "net/http",
	"slog":      "log/slog",
	"redis":     "github.com/redis/go-redis/v9",
	"redisotel": "github.com/redis/go-redis/extra/redisotel/v9",
	"metric":    "go.opentelemetry.io/otel/metric",
	"trace":     "go.opentelemetry.io/otel/trace",
	"lock":      "github.com/lockdog/lockdog/lock",
	"lockdebug": "github.com/lockdog/lockdog/lock/lockdebug",
	"otelsetup": "github.com/lockdog/lockdog/telemetry/otelsetup",
}

// pages are README.md and those in docs.
func pages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages in docs (%v)", err)
	}
	all := []string{"README.md"}
	for _, file := range files {
		all = append(all, filepath.ToSlash(filepath.Join("docs", filepath.Base(file))))
	}
	return all
}

// TestCodeCompiles compiles the Go code of all pages: whole files as they are, pieces in the frame. Code that needs a module which isn't
// one of this repository's is formatted only; a comment before it names the module.
func TestCodeCompiles(t *testing.T) {
	t.Parallel()
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o750); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Join(root, "bin"), "_doccheck") // go build ./... leaves out what begins with _
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	vet := exec.Command("go", "vet", "-race") // as the tests are built, so that nothing is built twice
	vet.Dir = root
	for _, page := range pages(t) {
		text := readFile(t, page)
		for _, m := range regexp.MustCompile("(?s)(<!-- module: \\S+ -->\n)?```go\n(.*?)```").FindAllStringSubmatchIndex(text, -1) {
			code := text[m[4]:m[5]]
			where := fmt.Sprintf("%s:%d", page, strings.Count(text[:m[4]], "\n")+1)
			if formatted, err := format.Source([]byte(code)); err != nil || string(formatted) != code {
				t.Errorf("%s: not as gofmt has it (%v):\n%s", where, err, formatted)
			}
			if m[2] >= 0 {
				continue
			}
			if !strings.HasPrefix(code, "package ") {
				code = framed(code)
			}
			at := filepath.Join(dir, strings.NewReplacer("/", "_", ":", "_", ".", "_").Replace(where))
			if err := os.Mkdir(at, 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(at, "code.go"), []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			vet.Args = append(vet.Args, "./bin/"+filepath.Base(dir)+"/"+filepath.Base(at))
		}
	}
	if len(vet.Args) < 10 {
		t.Errorf("only %d pieces of code found", len(vet.Args)-3)
	}
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}

// framed puts a piece of code into the frame, where it has a client, locks, and need not use one that it makes.
func framed(code string) string {
	begin, end := "\tvar locks *lock.Client\n", "\treturn err\n"
	if strings.Contains(code, "locks, err := ") {
		begin, code = "", strings.Replace(code, "locks, err := ", "locks, err := (*lock.Client)(nil), error(nil)\n_ = locks\nlocks, err = ", 1)
	}
	if regexp.MustCompile(`(?m)^return .*\n\z`).MatchString(code) {
		end = ""
	}
	var imports strings.Builder
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if strings.Contains(frame+code, name+".") {
			fmt.Fprintf(&imports, "\t%q\n", packages[name])
		}
	}
	return fmt.Sprintf(frame, &imports, begin, code, end)
}

func TestNumberOfAlerts(t *testing.T) {
	t.Parallel()
	rules, err := dashboards.FS.ReadFile("prometheus/lockdog-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	mustSay(t, "docs/OBSERVABILITY.md", fmt.Sprintf(" %d alerts,", strings.Count(string(rules), "- alert: ")))
}

// mustSay fails the test unless the file says so, wherever its lines break.
func mustSay(t *testing.T, file, text string) {
	t.Helper()
	if all := strings.Join(strings.Fields(readFile(t, file)), " "); !strings.Contains(all, strings.TrimSpace(text)) {
		t.Errorf("%s doesn't say %q", file, text)
	}
}

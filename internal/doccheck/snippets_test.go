package doccheck_test

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
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

// full is for `make nightly`.
var full = os.Getenv("LOCKDOG_FULL") != ""

// frame is what pieces of code stand in that are no whole file: a function with what they use from around them.
const frame = `package p

import (
%s)

func _(ctx context.Context, rdb *redis.Client, tracers trace.TracerProvider, meters metric.MeterProvider, logger *slog.Logger) error {
%s%s%s}

var errBusy = errors.New("busy")

func ship(context.Context, ...int64) error { return errBusy }

func serve(context.Context, int64) error { return errBusy }
`

// packages are those that the pieces and the frame may use.
var packages = map[string]string{
	"context":   "context",
	"errors":    "errors",
	"fmt":       "fmt",
	"io":        "io",
	"math":      "math",
	"strconv":   "strconv",
	"sync":      "sync",
	"testing":   "testing",
	"synctest":  "testing/synctest",
	"time":      "time",
	"http":      "net/http",
	"slog":      "log/slog",
	"sql":       "database/sql",
	"redis":     "github.com/redis/go-redis/v9",
	"redisotel": "github.com/redis/go-redis/extra/redisotel/v9",
	"metric":    "go.opentelemetry.io/otel/metric",
	"trace":     "go.opentelemetry.io/otel/trace",
	"lock":      "github.com/lockdog/lockdog/lock",
	"lockdebug": "github.com/lockdog/lockdog/lock/lockdebug",
	"leader":    "github.com/lockdog/lockdog/lock/leader",
	"fleet":     "github.com/lockdog/lockdog/lock/fleet",
	"locktest":  "github.com/lockdog/lockdog/lock/locktest",
	"otelsetup": "github.com/lockdog/lockdog/telemetry/otelsetup",
}

// pages are README.md and those in docs.
func pages(t *testing.T) []string {
	t.Helper()
	return append([]string{"README.md"}, glob(t, "docs/*.md")...)
}

// TestCodeCompiles checks the Go code of all pages and of the documentation of packages as the compiler does: whole files as they are, pieces in the
// frame. Code that needs a module which isn't one of this repository's is formatted only; a comment before it names the module. The long form vets
// it, too, for which go vet has to look at all that it imports.
func TestCodeCompiles(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	var files []*ast.File
	var compiled []piece
	imports := map[string]bool{}
	for _, p := range slices.Concat(piecesOfPages(t), piecesOfPackages(t)) {
		if formatted, err := format.Source([]byte(p.code)); err != nil || string(formatted) != p.code {
			t.Errorf("%s: not as gofmt has it (%v):\n%s", p.where, err, formatted)
		}
		if p.foreign {
			continue
		}
		f, err := parser.ParseFile(fset, p.where, p.file(), parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		files, compiled = append(files, f), append(compiled, p)
		for _, s := range f.Imports {
			imports[strings.Trim(s.Path.Value, `"`)] = true
		}
	}
	exports := exportsOf(t, slices.Sorted(maps.Keys(imports)))
	check := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }),
		Error:    func(err error) { t.Error(err) },
	}
	for _, f := range files {
		_, _ = check.Check(f.Name.Name, fset, []*ast.File{f}, nil) // Error has been told
	}
	if full {
		vet(t, compiled)
	}
}

// exportsOf are the files in which the compiler has left what packages, and those that they import, export.
func exportsOf(t *testing.T, imports []string) map[string]string {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-race", "-deps", "-export", "-f", "{{.ImportPath}}={{.Export}}"}, imports...)...) // as the tests are built
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list.Args, err)
	}
	exports := map[string]string{}
	for line := range strings.FieldsSeq(string(out)) {
		path, file, _ := strings.Cut(line, "=")
		exports[path] = file
	}
	return exports
}

func vet(t *testing.T, pieces []piece) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o750); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Join(root, "bin"), "_doccheck") // go build ./... leaves out what begins with _
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	vet := exec.Command("go", "vet", "-race")
	vet.Dir = root
	for _, p := range pieces {
		at := filepath.Join(dir, strings.NewReplacer("/", "_", ":", "_", ".", "_").Replace(p.where))
		if err := os.Mkdir(at, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "code.go"), []byte(p.file()), 0o600); err != nil {
			t.Fatal(err)
		}
		vet.Args = append(vet.Args, "./bin/"+filepath.Base(dir)+"/"+filepath.Base(at))
	}
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}

// piece is a piece of Go code.
type piece struct {
	where, code string
	foreign     bool // it needs a module that isn't one of this repository's
}

// piecesOfPages are those of README.md and docs.
func piecesOfPages(t *testing.T) (all []piece) {
	t.Helper()
	for _, page := range pages(t) {
		text := readFile(t, page)
		for _, m := range regexp.MustCompile("(?s)(<!-- module: \\S+ -->\n)?```go\n(.*?)```").FindAllStringSubmatchIndex(text, -1) {
			where := fmt.Sprintf("%s:%d", page, strings.Count(text[:m[4]], "\n")+1)
			all = append(all, piece{where, text[m[4]:m[5]], m[2] >= 0})
		}
	}
	if len(all) < 10 {
		t.Errorf("only %d pieces of code found in the pages", len(all))
	}
	return all
}

// piecesOfPackages are those of the packages' documentation: of what is indented there, all that calls something.
func piecesOfPackages(t *testing.T) (all []piece) {
	t.Helper()
	calls := regexp.MustCompile(`\w\.\w+\(`)
	for _, dir := range exported {
		name := dir + "/doc.go"
		if dir == "dashboards" {
			name = dir + "/embed.go"
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, readFile(t, name), parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range new(comment.Parser).Parse(f.Doc.Text()).Content {
			if code, ok := block.(*comment.Code); ok && calls.MatchString(code.Text) {
				all = append(all, piece{where: fmt.Sprintf("%s:paragraph%d", name, i+1), code: code.Text})
			}
		}
	}
	if len(all) < 6 {
		t.Errorf("only %d pieces of code found in the documentation of packages", len(all))
	}
	return all
}

// file is the file that is compiled.
func (p piece) file() string {
	switch {
	case strings.HasPrefix(p.code, "package "):
		return p.code
	case regexp.MustCompile(`\A(//.*\n)*func `).MatchString(p.code):
		return fmt.Sprintf("package p\n\nimport (\n%s)\n\n%s", importsOf(p.code), p.code)
	default:
		return framed(p.code)
	}
}

// framed puts a piece of code into the frame. There the variable locks is a client. If the piece makes that client
// itself, it needn't use it.
func framed(code string) string {
	begin, end := "\tvar locks *lock.Client\n\t_ = locks\n", "\treturn err\n"
	if strings.Contains(code, "locks, err := ") {
		begin, code = "", strings.Replace(code, "locks, err := ", "locks, err := (*lock.Client)(nil), error(nil)\n_ = locks\nlocks, err = ", 1)
	}
	if regexp.MustCompile(`(?m)^return .*\n\z`).MatchString(code) {
		end = ""
	}
	if !strings.Contains(code, "err") {
		end = "\treturn nil\n"
	}
	return fmt.Sprintf(frame, importsOf(frame+begin+code), begin, code, end)
}

// importsOf are the imports of a piece of code, a line each.
func importsOf(code string) string {
	var imports strings.Builder
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(code) {
			fmt.Fprintf(&imports, "\t%q\n", packages[name])
		}
	}
	return imports.String()
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

package doccheck_test

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// block is the text between <!-- name --> and <!-- /name -->, without the empty lines around it.
func block(t *testing.T, text, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "<!-- "+name+" -->\n")
	in, _, closed := strings.Cut(rest, "<!-- /"+name+" -->")
	if !ok || !closed {
		t.Fatalf("README.md has no <!-- %s --> ... <!-- /%[1]s -->", name)
	}
	return strings.Trim(in, "\n")
}

// program is the first Go code of the README.
func program(t *testing.T) string {
	t.Helper()
	_, rest, ok := strings.Cut(readFile(t, "README.md"), "```go\n")
	code, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatal("README.md has no Go code")
	}
	return code
}

// body is the text of a function, without the indentation.
func body(t *testing.T, file, function string) string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", file, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == function {
			text := file[fset.Position(fn.Body.Lbrace).Offset+1 : fset.Position(fn.Body.Rbrace).Offset]
			return strings.Trim(regexp.MustCompile(`(?m)^\t`).ReplaceAllString(text, ""), "\n")
		}
	}
	t.Fatalf("there is no func %s", function)
	return ""
}

// TestProgramIsTheExample compares the README's program with the example that runs in package lock's tests. They differ in
// where Redis is, and in the example's output.
func TestProgramIsTheExample(t *testing.T) {
	t.Parallel()
	const (
		example = "addr, stop := startRedis() // yours is at \"localhost:6379\"\ndefer stop()\n"
		readme  = "addr := \"localhost:6379\"\n"
	)
	want := body(t, readFile(t, "lock/example_test.go"), "Example")
	if !strings.Contains(want, example) {
		t.Fatalf("the example doesn't begin with\n%s", example)
	}
	want = strings.Replace(want, example, readme, 1)
	want, _, _ = strings.Cut(want, "\n\n// Output:")
	if got := body(t, program(t), "main"); got != want {
		t.Errorf("README.md has\n%s\n\nlock/example_test.go has\n%s", got, want)
	}
}

func TestProgramCompiles(t *testing.T) {
	t.Parallel()
	code := program(t)
	if formatted, err := format.Source([]byte(code)); err != nil || string(formatted) != code {
		t.Errorf("not as gofmt has it (%v):\n%s", err, formatted)
	}
	if lines := strings.Count(code, "\n"); lines > 35 {
		t.Errorf("%d lines: too long for a first look", lines)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	vet := exec.Command("go", "vet", file)
	vet.Dir = root
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}

// TestLinks follows the links to files of the repository.
func TestLinks(t *testing.T) {
	t.Parallel()
	links := regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(readFile(t, "README.md"), -1)
	if len(links) == 0 {
		t.Error("no links found")
	}
	for _, m := range links {
		if strings.Contains(m[1], "://") {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Error(err)
		}
	}
}

package doccheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// glob is the files of a pattern, from the root of the repository. There is one at least.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s (%v)", pattern, err)
	}
	for i, file := range files {
		files[i] = filepath.ToSlash(strings.TrimPrefix(file, root+"/"))
	}
	return files
}

// parse reads the Go files of a folder, without the tests.
func parse(t *testing.T, dir string) (fset *token.FileSet, files []*ast.File) {
	t.Helper()
	fset = token.NewFileSet()
	for _, name := range glob(t, dir+"/*.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, readFile(t, name), parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return fset, files
}

// block is the text of a file between <!-- name --> and <!-- /name -->, without the empty lines around it.
func block(t *testing.T, path, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(readFile(t, path), "<!-- "+name+" -->\n")
	in, _, closed := strings.Cut(rest, "<!-- /"+name+" -->")
	if !ok || !closed {
		t.Fatalf("%s has no <!-- %s --> ... <!-- /%[2]s -->", path, name)
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

// TestPagesAreLinked looks for pages of docs that README.md doesn't lead to.
func TestPagesAreLinked(t *testing.T) {
	t.Parallel()
	readme := readFile(t, "README.md")
	for _, page := range pages(t)[1:] {
		if !strings.Contains(readme, "]("+page+")") {
			t.Errorf("README.md has no link to %s", page)
		}
	}
}

// anchored are the documents whose links are followed, to files and to headings.
var anchored = []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "dashboards/RUNBOOK.md", "dashboards/pictures/README.md", "docs/*.md"}

// TestLinks follows the links to files of the repository, pictures included, and to headings in them.
func TestLinks(t *testing.T) {
	t.Parallel()
	links := regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"`)
	anchors := map[string][]string{}
	for _, pattern := range anchored {
		for _, name := range glob(t, pattern) {
			for _, m := range links.FindAllStringSubmatch(readFile(t, name), -1) {
				if link := m[1] + m[2]; !strings.Contains(link, "://") {
					follow(t, anchors, name, link)
				}
			}
		}
	}
}

// follow looks for what a link of a file leads to. It fills anchors, by file.
func follow(t *testing.T, anchors map[string][]string, from, link string) {
	t.Helper()
	path, heading, anchor := strings.Cut(link, "#")
	target := from
	if path != "" {
		target = filepath.Join(filepath.Dir(from), path)
	}
	if _, err := os.Stat(filepath.Join(root, target)); err != nil {
		t.Errorf("%s: %v", from, err)
		return
	}
	if anchor && anchors[target] == nil {
		anchors[target] = headings(readFile(t, target))
	}
	if anchor && !slices.Contains(anchors[target], heading) {
		t.Errorf("%s: %s has no heading for #%s", from, target, heading)
	}
}

// headings are the anchors that GitHub gives a document's headings.
func headings(text string) (all []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

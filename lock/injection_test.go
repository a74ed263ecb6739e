package lock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// No command is built from strings: what comes from outside is never more than a key or an argument of it.

// sends are the ways of go-redis to send what a program has written itself.
var sends = regexp.MustCompile(`^(Do|Eval|EvalRO|EvalSha|EvalShaRO|ScriptLoad|FCall|FCallRO|FunctionLoad|FunctionLoadReplace|NewScript)$`)

// TestCommandsAreLiterals looks at the sources of package lock and of all packages below it: the name of a command is a
// literal, and EVAL only gets the text of a Script. Only package script makes Scripts. It makes them from embedded
// files.
func TestCommandsAreLiterals(t *testing.T) {
	t.Parallel()
	newCmd := regexp.MustCompile(`^New\w*Cmd$`)
	allowed := map[string]int{ // what is found besides literals, and how often
		"internal/backend/redis.go: NewCmd of append(args, ...)": 0,
		"internal/script/script.go: backend.NewScript":           0,
		"internal/backend/backend.go: Script{}":                  0,
		"internal/tracking/check.go: pipe.Do":                    0, // of hmget or zmscore, in the lines before it
	}
	found := func(where, what string) {
		if _, ok := allowed[where+": "+what]; !ok {
			t.Errorf("%s: %s", where, what)
		}
		allowed[where+": "+what]++
	}
	files := 0
	for _, path := range sources(t) {
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				switch named(n.Type) {
				case "Script":
					found(path, "Script{}")
				case "Traits":
					mustPublishBy(t, path, n)
				}
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				if !ok {
					break
				}
				of := named(f.X)
				switch {
				case of == "redis" && newCmd.MatchString(f.Sel.Name):
					if _, literal := n.Args[1].(*ast.BasicLit); !literal {
						found(path, f.Sel.Name+" of append(args, ...)")
					}
				case of == "rdb", of == "pipe", of == "node", of == "shard", of == "redis":
					if sends.MatchString(f.Sel.Name) {
						found(path, of+"."+f.Sel.Name)
					}
				case f.Sel.Name == "NewScript":
					found(path, of+".NewScript")
				}
			}
			return true
		})
	}
	for what, n := range allowed {
		if n != 1 {
			t.Errorf("%s: %d times, want 1: has the code moved on?", what, n)
		}
	}
	if files < 40 {
		t.Errorf("%d files looked at", files)
	}
}

// named is the name of a type or variable, without its package or owner.
func named(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// mustPublishBy checks that the commands in a backend.Traits literal, which the scripts call, are literals that we
// know.
func mustPublishBy(t *testing.T, path string, n *ast.CompositeLit) {
	t.Helper()
	for _, e := range n.Elts {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok || named(field.Key) != "Publish" && named(field.Key) != "NumSubCommand" {
			continue
		}
		lit, ok := field.Value.(*ast.BasicLit)
		if !ok || !slices.Contains([]string{`"publish"`, `"spublish"`, `"numsub"`, `"shardnumsub"`}, lit.Value) {
			t.Errorf("%s: %s is no literal that is known", path, named(field.Key))
		}
	}
}

// sources are the Go files of package lock and of all packages below it, without tests and testdata.
func sources(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestScriptsCallLiterals checks that the scripts, too, call commands by literal names only, except PUBLISH, which is
// SPUBLISH in a cluster. No script runs text as Lua.
func TestScriptsCallLiterals(t *testing.T) {
	t.Parallel()
	call := regexp.MustCompile(`redis\.p?call\(\s*([^,)]*)`)
	literal := regexp.MustCompile(`^'[a-z]+'$`)
	paths, err := filepath.Glob("internal/script/*.lua")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		source := string(text)
		for _, m := range call.FindAllStringSubmatch(source, -1) {
			says := regexp.MustCompile(`(?m)^-- ` + regexp.QuoteMeta(m[1]) + ` +'publish', or 'spublish'`)
			if !literal.MatchString(m[1]) && m[1] != "publish" && !says.MatchString(source) {
				t.Errorf("%s calls %s", path, m[1])
			}
		}
		if m := regexp.MustCompile(`\b(loadstring|load|dofile|setfenv|rawset)\s*\(`).FindString(source); m != "" {
			t.Errorf("%s uses %s", path, m)
		}
	}
}

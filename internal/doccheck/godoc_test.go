package doccheck_test

import (
	"go/ast"
	"testing"
)

// exported are the packages that users import.
var exported = []string{"lock", "lock/locktest", "lock/lockdebug", "lock/leader", "lock/fleet", "watchdog", "telemetry", "telemetry/otelsetup", "dashboards"}

// TestEverythingIsDocumented looks for what is exported without a word on it: functions, types, values, and the fields and methods
// within types, which no linter looks at.
func TestEverythingIsDocumented(t *testing.T) {
	t.Parallel()
	for _, dir := range exported {
		fset, files := parse(t, dir)
		silent := func(n *ast.Ident) { t.Errorf("%s: %s has no comment", fset.Position(n.Pos()), n.Name) }
		for _, f := range files {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Name.IsExported() && d.Doc == nil && isExported(d.Recv) {
						silent(d.Name)
					}
				case *ast.GenDecl:
					for _, s := range d.Specs {
						inspect(s, d.Doc != nil, silent)
					}
				}
			}
		}
	}
}

// isExported reports whether a method's receiver is; it is true of functions, which have none.
func isExported(recv *ast.FieldList) bool {
	if recv == nil {
		return true
	}
	typ := recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	name, ok := typ.(*ast.Ident)
	return ok && name.IsExported()
}

// inspect tells of what is exported by a declaration and has no comment; said: what it stands in has one.
func inspect(s ast.Spec, said bool, silent func(*ast.Ident)) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			if n.IsExported() && !said && s.Doc == nil && s.Comment == nil {
				silent(n)
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		if !said && s.Doc == nil {
			silent(s.Name)
		}
		members := new(ast.FieldList)
		switch typ := s.Type.(type) {
		case *ast.StructType:
			members = typ.Fields
		case *ast.InterfaceType:
			members = typ.Methods
		}
		for _, m := range members.List {
			for _, n := range m.Names {
				if n.IsExported() && m.Doc == nil && m.Comment == nil {
					silent(n)
				}
			}
		}
	}
}

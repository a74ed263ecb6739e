package memory

import (
	"reflect"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// chunk is what Redis calls a script in errors.
const chunk = "user_script"

// compiled are the scripts that were run in this process, by digest. Nothing writes to what is in there.
var compiled sync.Map // string -> *lua.FunctionProto

func compile(script *backend.Script) (*lua.FunctionProto, error) {
	if known, ok := compiled.Load(script.SHA); ok {
		return known.(*lua.FunctionProto), nil
	}
	body, err := parse.Parse(strings.NewReader(script.Source), chunk)
	if err != nil {
		return nil, err
	}
	wordNumbers(reflect.ValueOf(body))
	proto, err := lua.Compile(body, chunk)
	if err != nil {
		return nil, err
	}
	proto.IsVarArg &^= lua.VarArgNeedsArg // a table of a script's own arguments, which has none
	compiled.Store(script.SHA, proto)
	return proto, nil
}

// wording is the function that wordNumbers has numbers worded by. No script can have a name like that.
const wording = ".."

// wordNumbers changes every a .. b so that numbers in it are worded as Lua words them, with 14 digits. The interpreter gives all
// digits, and so would hide that in Redis a token or a time in µs comes out as 1.7e+15.
func wordNumbers(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return
		}
		wordNumbers(v.Elem())
		if concat, ok := v.Interface().(*ast.StringConcatOpExpr); ok && v.Kind() == reflect.Pointer {
			concat.Lhs, concat.Rhs = worded(concat.Lhs), worded(concat.Rhs)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			wordNumbers(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			wordNumbers(v.Index(i))
		}
	}
}

func worded(e ast.Expr) ast.Expr {
	switch e.(type) {
	case *ast.StringExpr, *ast.StringConcatOpExpr:
		return e
	}
	name := &ast.IdentExpr{Value: wording}
	call := &ast.FuncCallExpr{Func: name, Args: []ast.Expr{e}, AdjustRet: true}
	for _, n := range []ast.Expr{name, call} {
		n.SetLine(e.Line())
		n.SetLastLine(e.LastLine())
	}
	return call
}

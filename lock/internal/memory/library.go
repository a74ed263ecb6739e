package memory

import (
	"fmt"
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// What scripts have of Lua's library: a part of what Redis gives them. Where the interpreter's functions differ from
// Lua's own, there are others.

// base are the functions without a table.
var base = []string{"assert", "error", "ipairs", "next", "pairs", "pcall", "select", "type", "unpack", "_VERSION"}

// library returns the global variables of scripts, and the table through which scripts see them: they outlive a
// script, so none can change them, and what isn't there is an error, as in Redis.
func library(L *lua.LState) (globals, env *lua.LTable) {
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenString, lua.OpenTable, lua.OpenMath} {
		L.Push(L.NewFunction(open))
		L.Call(0, 0)
	}
	all := L.G.Global
	tableNamed := func(name string) *lua.LTable { return all.RawGetString(name).(*lua.LTable) }
	texts, tables, maths := tableNamed("string"), tableNamed("table"), tableNamed("math")
	texts.RawSetString("format", L.NewFunction(format))
	texts.RawSetString("upper", L.NewFunction(mapBytes('a', 'z')))
	texts.RawSetString("lower", L.NewFunction(mapBytes('A', 'Z')))
	tables.RawSetString("concat", L.NewFunction(concat))
	maths.RawSetString("huge", lua.LNumber(math.Inf(1)))

	globals = L.NewTable()
	for _, name := range base {
		globals.RawSetString(name, all.RawGetString(name))
	}
	globals.RawSetString("string", guard(L, texts))
	globals.RawSetString("table", guard(L, tables))
	globals.RawSetString("math", guard(L, maths))
	for name, fn := range map[string]lua.LGFunction{
		"tostring": toString, "tonumber": toNumber, wording: word, "pcall": pcallOf(all.RawGetString("pcall").(*lua.LFunction)),
	} {
		globals.RawSetString(name, L.NewFunction(fn))
	}
	L.SetMetatable(globals, table(L, map[string]lua.LGFunction{"__index": func(L *lua.LState) int {
		L.RaiseError("Script attempted to access nonexistent global variable '%s'", L.ToString(2))
		return 0
	}}))
	env = guard(L, globals)
	globals.RawSetString("_G", env)
	return globals, env
}

// table makes one of functions.
func table(L *lua.LState, functions map[string]lua.LGFunction) *lua.LTable {
	t := L.NewTable()
	for name, fn := range functions {
		t.RawSetString(name, L.NewFunction(fn))
	}
	return t
}

// guard returns a table that shows what is in t, and can't be written to.
func guard(L *lua.LState, t *lua.LTable) *lua.LTable {
	meta := table(L, map[string]lua.LGFunction{"__newindex": func(L *lua.LState) int {
		L.RaiseError("Attempt to modify a readonly table")
		return 0
	}})
	meta.RawSetString("__index", t)
	g := L.NewTable()
	g.Metatable = meta
	return g
}

// numberText is how Lua words a number.
func numberText(n lua.LNumber) string { return floatText(float64(n), 14) }

// word is what stands in for x in x .. y: a number as text, anything else as it is.
func word(L *lua.LState) int {
	if n, ok := L.Get(1).(lua.LNumber); ok {
		L.Push(lua.LString(numberText(n)))
	} else {
		L.Push(L.Get(1))
	}
	return 1
}

func toString(L *lua.LState) int {
	if n, ok := L.CheckAny(1).(lua.LNumber); ok {
		L.Push(lua.LString(numberText(n)))
	} else {
		L.Push(L.ToStringMeta(L.Get(1)))
	}
	return 1
}

// toNumber is tonumber without a base: the interpreter's takes "010" for 8.
func toNumber(L *lua.LState) int {
	if L.GetTop() > 1 {
		L.RaiseError("locktest: the memory server's tonumber knows no base")
	}
	switch v := L.CheckAny(1).(type) {
	case lua.LNumber:
		L.Push(v)
	case lua.LString:
		if f, ok := float(strings.Trim(string(v), " \t\n\v\f\r")); ok {
			L.Push(lua.LNumber(f))
			break
		}
		L.Push(lua.LNil)
	default:
		L.Push(lua.LNil)
	}
	return 1
}

// pcallOf makes pcall, which in Redis gives the text of an error that redis.call raised.
func pcallOf(pcall *lua.LFunction) lua.LGFunction {
	return func(L *lua.LState) int {
		n := pcall.GFunction(L)
		if t, ok := L.Get(-1).(*lua.LTable); ok && L.Get(-n) == lua.LFalse {
			if text, ok := t.RawGetString("err").(lua.LString); ok {
				L.Pop(1)
				L.Push(text)
			}
		}
		return n
	}
}

// mapBytes makes string.upper or lower: letters have another case, and all other bytes are left as they are.
func mapBytes(first, last byte) lua.LGFunction {
	return func(L *lua.LState) int {
		text := []byte(L.CheckString(1))
		for i, c := range text {
			if first <= c && c <= last {
				text[i] ^= 'a' ^ 'A'
			}
		}
		L.Push(lua.LString(text))
		return 1
	}
}

func concat(L *lua.LState) int {
	t, sep := L.CheckTable(1), L.OptString(2, "")
	from, to := L.OptInt(3, 1), L.OptInt(4, t.Len())
	var b strings.Builder
	for i := from; i <= to; i++ {
		switch v := t.RawGetInt(i).(type) {
		case lua.LString:
			b.WriteString(string(v))
		case lua.LNumber:
			b.WriteString(numberText(v))
		default:
			L.RaiseError("invalid value (%s) at index %d in table for 'concat'", v.Type(), i)
		}
		if i < to {
			b.WriteString(sep)
		}
	}
	L.Push(lua.LString(b.String()))
	return 1
}

// format is string.format with C's directives, which aren't quite Go's.
func format(L *lua.LState) int {
	var b strings.Builder
	rest, arg := L.CheckString(1), 1
	for {
		text, after, more := strings.Cut(rest, "%")
		b.WriteString(text)
		if !more {
			break
		}
		flags := len(after) - len(strings.TrimLeft(after, "-+ #0123456789."))
		if flags == len(after) {
			L.RaiseError("invalid option '%%%s' to 'format'", after)
		}
		verb := after[flags]
		rest = after[flags+1:]
		if verb == '%' {
			b.WriteByte('%')
			continue
		}
		arg++
		b.WriteString(directive(L, arg, after[:flags], verb))
	}
	L.Push(lua.LString(b.String()))
	return 1
}

func directive(L *lua.LState, arg int, flags string, verb byte) string {
	switch verb {
	case 'd', 'i':
		return fmt.Sprintf("%"+flags+"d", truncate(float64(numberArg(L, arg))))
	case 'c':
		return fmt.Sprintf("%"+flags+"s", []byte{byte(numberArg(L, arg))})
	case 'x', 'X', 'o':
		return fmt.Sprintf("%"+flags+string(verb), truncate(float64(numberArg(L, arg))))
	case 'f', 'e', 'g', 'E', 'G':
		if verb != 'f' && !strings.Contains(flags, ".") {
			flags += ".6"
		}
		return fmt.Sprintf("%"+flags+string(verb), float64(numberArg(L, arg)))
	case 's':
		text := L.CheckAny(arg)
		if n, ok := text.(lua.LNumber); ok {
			return fmt.Sprintf("%"+flags+"s", numberText(n))
		}
		return fmt.Sprintf("%"+flags+"s", L.CheckString(arg))
	}
	L.RaiseError("invalid option '%%%c' to 'format'", verb)
	return ""
}

// numberArg is a number, or a string that is one.
func numberArg(L *lua.LState, arg int) lua.LNumber {
	if text, ok := L.Get(arg).(lua.LString); ok {
		if f, ok := float(strings.TrimSpace(string(text))); ok {
			return lua.LNumber(f)
		}
	}
	return L.CheckNumber(arg)
}

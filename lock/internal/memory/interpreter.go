package memory

import (
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// interpreter runs scripts, one at a time.
type interpreter struct {
	state   *lua.LState
	globals *lua.LTable              // what scripts see as global; they can't write to it
	env     *lua.LTable              // what guards it
	rescue  *lua.LFunction           // is told of the error that ends a script
	line    int                      // where that was
	words   []string                 // of the command that runs
	do      func(words []string) any // runs it
}

func newInterpreter(do func([]string) any) *interpreter {
	in := &interpreter{state: lua.NewState(lua.Options{
		SkipOpenLibs: true,
		RegistrySize: 1 << 10, RegistryGrowStep: 1 << 10, RegistryMaxSize: 1 << 16, // unpack may need as much
	}), do: do}
	in.globals, in.env = library(in.state)
	in.globals.RawSetString("redis", guard(in.state, table(in.state, map[string]lua.LGFunction{
		"call":         in.call,
		"pcall":        in.pcall,
		"error_reply":  replyOf(errorReply),
		"status_reply": replyOf(statusReply),
	})))
	in.rescue = in.state.NewFunction(in.locate)
	return in
}

// run runs a script. Reply and error are as go-redis gives them.
func (in *interpreter) run(script *backend.Script, keys []string, args []any) (any, error) {
	proto, err := compile(script)
	if err != nil {
		return nil, serverError("ERR Error compiling script (new function): " + err.Error())
	}
	L := in.state
	keyTable, argTable := L.CreateTable(len(keys), 0), L.CreateTable(len(args), 0)
	for _, k := range keys {
		keyTable.Append(lua.LString(k))
	}
	for _, a := range args {
		argTable.Append(lua.LString(argText(a)))
	}
	in.globals.RawSetString("KEYS", keyTable)
	in.globals.RawSetString("ARGV", argTable)

	fn := L.NewFunctionFromProto(proto)
	fn.Env = in.env
	defer L.SetTop(0)
	L.Push(fn)
	in.line = 1
	if err := L.PCall(0, 1, in.rescue); err != nil {
		return nil, serverError(fmt.Sprintf("%s script: %s, on @%s:%d.", errorText(err), script.SHA, chunk, in.line))
	}
	reply := fromLua(L.Get(-1))
	if err, ok := reply.(serverError); ok {
		return nil, err
	}
	if reply == nil {
		return nil, redis.Nil
	}
	return reply, nil
}

// argText is an argument as go-redis sends it: our scripts are given strings and whole numbers.
func argText(a any) string {
	switch a := a.(type) {
	case string:
		return a
	case int64:
		return strconv.FormatInt(a, 10)
	}
	return fmt.Sprint(a)
}

// locate notes the line of the error that ends the script.
func (in *interpreter) locate(L *lua.LState) int {
	for level := 1; ; level++ {
		frame, ok := L.GetStack(level)
		if !ok {
			return 1
		}
		if _, err := L.GetInfo("l", frame, nil); err == nil && frame.CurrentLine > 0 {
			in.line = frame.CurrentLine
			return 1
		}
	}
}

// errorText is what Redis says of the error that ended a script.
func errorText(err error) string {
	thrown, ok := err.(*lua.ApiError) //nolint:errorlint // PCall wraps nothing
	if !ok {
		return "ERR " + err.Error()
	}
	if t, ok := thrown.Object.(*lua.LTable); ok {
		if text, ok := t.RawGetString("err").(lua.LString); ok {
			return string(text)
		}
	}
	return "ERR " + thrown.Object.String()
}

// call is redis.call, which raises what is an error.
func (in *interpreter) call(L *lua.LState) int {
	reply := in.command(L)
	v := toLua(L, reply)
	if _, failed := reply.(error); failed {
		L.Error(v, 1)
	}
	L.Push(v)
	return 1
}

// pcall is redis.pcall, which returns it.
func (in *interpreter) pcall(L *lua.LState) int {
	L.Push(toLua(L, in.command(L)))
	return 1
}

// command runs the command that a function of Lua was given.
func (in *interpreter) command(L *lua.LState) any {
	n := L.GetTop()
	if n == 0 {
		return serverError("ERR Please specify at least one argument for this redis lib call")
	}
	in.words = in.words[:0]
	for i := 1; i <= n; i++ {
		switch v := L.Get(i).(type) {
		case lua.LString:
			in.words = append(in.words, string(v))
		case lua.LNumber:
			in.words = append(in.words, floatText(float64(v), 17))
		default:
			return serverError("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	return in.do(in.words)
}

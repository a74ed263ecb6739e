package memory

import (
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// toLua makes a value of Lua of a command's reply.
func toLua(L *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case status:
		return oneField(L, "ok", string(r))
	case error:
		return oneField(L, "err", r.Error())
	case []any:
		t := L.CreateTable(len(r), 0)
		for _, item := range r {
			t.Append(toLua(L, item))
		}
		return t
	}
	return lua.LFalse // nil
}

// oneField makes what a status or an error is in Lua.
func oneField(L *lua.LState, name, text string) *lua.LTable {
	t := L.CreateTable(0, 1)
	t.RawSetString(name, lua.LString(text))
	return t
}

// fromLua makes a reply, as go-redis gives it, of what a script returned. RESP3's own types aren't here.
func fromLua(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LNumber:
		return truncate(float64(v))
	case lua.LString:
		return string(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		if text, ok := v.RawGetString("err").(lua.LString); ok {
			return serverError(text)
		}
		if text, ok := v.RawGetString("ok").(lua.LString); ok {
			return string(text)
		}
		reply := []any{}
		for i := 1; ; i++ {
			item := v.RawGetInt(i)
			if item == lua.LNil {
				return reply
			}
			reply = append(reply, fromLua(item))
		}
	}
	return nil
}

// truncate is C's conversion to long long on the usual machines.
func truncate(f float64) int64 {
	if !(math.Abs(f) < 1<<63) {
		return math.MinInt64
	}
	return int64(f)
}

// errorReply is redis.error_reply. An error's first word is its code: ERR where it has but one.
func errorReply(text string) any {
	text = strings.TrimPrefix(text, "-")
	if !strings.Contains(text, " ") {
		text = "ERR " + text
	}
	return serverError(text)
}

// statusReply is redis.status_reply.
func statusReply(text string) any { return status(text) }

// replyOf makes a function of Lua that turns a text into a reply.
func replyOf(reply func(text string) any) lua.LGFunction {
	return func(L *lua.LState) int {
		if text, ok := L.Get(1).(lua.LString); ok && L.GetTop() == 1 {
			L.Push(toLua(L, reply(string(text))))
		} else {
			L.Push(toLua(L, serverError("ERR wrong number or type of arguments")))
		}
		return 1
	}
}

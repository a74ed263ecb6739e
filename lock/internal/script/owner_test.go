package script

import (
	"context"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestClientIDOf(t *testing.T) {
	t.Parallel()
	const uuid = "0f0e0d0c-0102-0304-0506-0708090a0b0c"
	for _, tt := range []struct{ owner, want string }{
		{"host/7:0123456789abcdef-1", "host/7"},
		{"host/7:0123456789abcdef-18446744073709551615", "host/7"},
		{"host/7:0123456789abcdef-1:write", "host/7"},
		{"a b:0123456789abcdef-1", "a b"},
		{"host:0123456789abcdef-", ""},
		{"host:0123456789abcdef", ""},
		{"host:0123456789abcde-1", ""},
		{"host:0123456789abcdefg-1", ""},
		{"user:unsubscribed-all-1", ""},
		{"user:abcdefghijklmnop-12", ""}, // as long, but no number
		{"host:0123456789abcdef--1", ""},
		{"host:0123456789abcdef-1:read", ""},
		{uuid + ":7", ""},
		{uuid + ":7:write", ""},
		{":0123456789abcdef-1", ""},
		{"", ""},
	} {
		if got := ClientIDOf(tt.owner); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.owner, got, tt.want)
		}
		if _, random := ClientOf(tt.owner); tt.want != "" && random != "0123456789abcdef" {
			t.Errorf("%q: random %q", tt.owner, random)
		}
	}
}

// What the scripts take for an owner, a count and a number, package fleet does, too.
func TestLuaAndGoAgree(t *testing.T) {
	t.Parallel()
	const says = `local function bit(is) return is and 1 or 0 end
return {bit(isOwner(ARGV[1])), bit(isCount(ARGV[1])), bit(isNumber(ARGV[1]))}`
	lua := build("agree", read("owner", "number"), says)
	rdb := redistest.Start(t).Client(t)
	bit := func(is bool) int64 {
		if is {
			return 1
		}
		return 0
	}
	agree := func(t interface {
		Context() context.Context
		Errorf(string, ...any)
	}, text string,
	) {
		got, err := rdb.Eval(t.Context(), lua.Source, nil, text).Result()
		if want := []any{bit(IsOwner(text)), bit(IsCount(text)), bit(IsNumber(text))}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v in Lua, %v in Go", text, got, err, want)
		}
	}
	for text, owner := range map[string]bool{
		"host/7:0123456789abcdef-1": true, "a b:0123456789abcdef-1:write": true, "0f0e0d0c-0102-0304-0506-0708090a0b0c:7": true,
		"0f0e0d0c-0102-0304-0506-0708090a0b0c:-7:write": true, "an id\n\x00\xff:12": true, "a:b:3": true,
		"0f0e0d0c-0102-0304-0506-0708090a0b0c:7:0123456789abcdef0123456789abcdef": true, "u:7:write:0123456789abcdef0123456789ABCDEF": true,
		"u:0123456789abcdef0123456789abcdef": false, "u:7:0123456789abcdef": false, "a:b:01234567890123456789012345678901": true, "host:0123456789abcde-1": false,
		"": false, ":1": false, "1": false, "host:": false, "email": false, "mode": false, "@lockdog": false, "host:0123456789abcdef-": false, "host:1 ": false,
		"host:1:read": false, ":write": false, "host:1\n": false, "a:b:0123456789abcdef-1": false, "host:--1": false, "host:1:write:write": false,
		"0": false, "-0": false, "00": false, "01": false, "7": false, "-7": false, "+7": false, "1e3": false, "1.0": false, " 7": false, "9999999999": false,
		"10000000000": false, "999999999999999": false, "-99999999999999": false, "1000000000000000": false, "9223372036854775807": false, "7\n": false,
	} {
		if IsOwner(text) != owner {
			t.Errorf("%q is an owner: %v", text, !owner)
		}
		agree(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		agree(t, rapid.OneOf(rapid.String(), rapid.StringMatching(`.{0,3}:?-?[0-9a-f]{0,17}-?[0-9]{0,3}(:write)?`), rapid.StringMatching(`-?[0-9]{0,18}`)).Draw(t, "text"))
	})
}

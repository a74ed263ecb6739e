package script

import "testing"

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

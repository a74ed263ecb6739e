package script

import (
	"slices"
	"testing"
	"time"
)

func TestWaitsWriteArgs(t *testing.T) {
	t.Parallel()
	var r Request
	WaitsWriteArgs(&r, WaitsKey("app:", "0123456789abcdef"), WaitsChange{Remove: []string{"a"}, Set: []string{"b", "[]"}})
	if !r.HasNotAfter() {
		t.Error("it has no not-after") // a write that is delayed then comes at any time
	}
	r.SetNotAfter(7)
	if want := []any{int64(7), int64(5000), 0, 1, "a", "b", "[]"}; !slices.Equal(r.Args, want) || !slices.Equal(r.Keys, []string{"app:lockdog:waits:{0123456789abcdef}"}) {
		t.Errorf("%v %v, want %v", r.Keys, r.Args, want)
	}
	WaitsWriteArgs(&r, "k", WaitsChange{Anew: true})
	if want := []any{int64(0), int64(5000), 1, 0}; !slices.Equal(r.Args, want) {
		t.Errorf("%v, want %v", r.Args, want)
	}
}

func TestParseWaitsRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reply []any
		age   time.Duration
		texts []string
	}{
		{[]any{int64(5000), "a", nil}, 0, []string{"a", ""}},
		{[]any{int64(3500), nil, "b"}, 1500 * time.Millisecond, []string{"", "b"}},
		{[]any{int64(3500)}, 1500 * time.Millisecond, []string{"", ""}}, // Lua cuts nil off
		{[]any{int64(9000), "a"}, 0, []string{"a", ""}},
		{[]any{int64(-2), nil, nil}, WaitsLife, []string{"", ""}},
		{[]any{int64(-1), "a", "b"}, WaitsLife, []string{"", ""}}, // nobody refreshes it
	} {
		age, texts, err := ParseWaitsRead(tt.reply, 2)
		if err != nil || age != tt.age || !slices.Equal(texts, tt.texts) {
			t.Errorf("%v: %v %q %v, want %v %q", tt.reply, age, texts, err, tt.age, tt.texts)
		}
	}
}

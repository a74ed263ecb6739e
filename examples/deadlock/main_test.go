package main

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// output is written by several goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// With -break all get done, and one of them at its second try; without, none does.
func TestDeadlock(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	for _, breaks := range []bool{true, false} {
		args := []string{"-redis", redistest.Start(t).Addr(), "-pause", "500ms"}
		if breaks {
			args = append(args, "-break")
		} else {
			args = append(args, "-wait", "4s")
		}
		var out output
		err := run(t.Context(), args, &out)
		if done := err == nil; done != breaks || !breaks && !errors.Is(err, lock.ErrHeld) {
			t.Errorf("%v: %v", args, err)
		}
		for text, want := range map[string]int{
			" WRN deadlock ": 3, "broken=true": map[bool]int{true: 1}[breaks], " INF done ": map[bool]int{true: 3}[breaks],
		} {
			if n := strings.Count(out.text.String(), text); n != want {
				t.Errorf("%v: %d times %s, want %d:\n%s", args, n, text, want, &out.text)
			}
		}
	}
}

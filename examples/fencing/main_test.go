package main

import (
	"bytes"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStory(t *testing.T) {
	t.Parallel()
	const want = `alice has the lock, reads 100, and stops
bob has the lock, and adds 7: 107, <nil>
alice goes on, and writes 150: refused: a later holder has written
the balance is 107
her Context had ended: lockdog: lease of lock "account:7" lost: expired
`
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil || out.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, &out, want)
	}
}

// Without the check the paused holder would have undone what came after it.
func TestAccountTakesTheSameTokenTwice(t *testing.T) {
	t.Parallel()
	a := &account{}
	for _, w := range []struct {
		token int64
		taken bool
	}{{5, true}, {5, true}, {4, false}, {6, true}, {5, false}} {
		if err := a.write(w.token, w.token); (err == nil) != w.taken {
			t.Errorf("token %d after %d: %v", w.token, a.token, err)
		}
	}
}

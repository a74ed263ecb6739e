package main

import (
	"bytes"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStory(t *testing.T) {
	t.Parallel()
	const want = `elected: north
north resigns: <nil>
elected: south
south is deposed, and knows: true
elected: north; each term has a larger token: true
`
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil || out.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, &out, want)
	}
}

//go:build unix

package child

import (
	"os"
	"testing"
)

// What is no terminal has nobody in front, and so not this process: its group may be unknown, in a PID namespace, and so is the one in front then.
func TestControlling_NoTerminal(t *testing.T) {
	t.Parallel()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	for _, own := range []int{0, os.Getpid()} {
		if term := controlling(file, own); term != nil {
			t.Errorf("in front of %s as group %d", file.Name(), own)
		}
	}
}

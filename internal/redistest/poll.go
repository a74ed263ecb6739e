package redistest

import (
	"fmt"
	"testing"
	"time"
)

// patience is how long this package waits for what must happen, on a machine that gives us hardly any CPU. On an idle
// one a server starts in 20 ms, and the slowest shape, a Cluster of six, in three seconds.
const patience = 2 * time.Minute

const pollEvery = 5 * time.Millisecond

// poll calls try every few milliseconds until it returns nil. When patience is over, poll returns the last error.
func poll(try func() error) error {
	for start := time.Now(); ; time.Sleep(pollEvery) {
		err := try()
		if err == nil {
			return nil
		}
		if time.Since(start) > patience {
			return fmt.Errorf("after %v: %w", patience, err)
		}
	}
}

// must ends the test if err isn't nil.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

//go:build e2e

package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestEndToEnd is one story: it goes well, Redis is cut off, it comes back. Each part asserts what can be seen by then.
func TestEndToEnd(t *testing.T) {
	began := time.Now()
	s := startStack(t)
	var facts report
	facts.add("everything is up after %v", since(began))

	parts := []struct {
		name string
		run  func(*testing.T)
	}{
		{"request and waiter", func(t *testing.T) { testTraces(t, s, &facts) }},
		{"exemplars", func(t *testing.T) { testExemplars(t, s, &facts) }},
		{"alerts", func(t *testing.T) { testAlerts(t, s, &facts) }},
		{"losses in traces", func(t *testing.T) { testLosses(t, s) }},
		{"dashboards and rules", func(t *testing.T) { testDashboards(t, s, &facts) }},
		{"shutdown", func(t *testing.T) { testShutdown(t, s) }},
	}
	for _, part := range parts {
		if !t.Run(part.name, part.run) {
			break // the next would only wait for what isn't there
		}
	}
	facts.add("all of it took %v", since(began))
	fmt.Print(facts)
}

// report is what was measured, for who reads the output of a test that passed.
type report string

func (r *report) add(format string, args ...any) {
	*r += report("e2e: " + fmt.Sprintf(format, args...) + "\n")
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// testShutdown stops the services while they hold locks.
func testShutdown(t *testing.T, s *stack) {
	for _, i := range []*instance{s.a, s.b, s.idle} {
		if state := i.terminate(t); !state.Success() {
			t.Errorf("%s: %v", i.name, state)
		}
	}
}

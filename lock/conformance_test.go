package lock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// The conformance suite: tables of behaviours, by theme, run for every kind of lock over every shape of server: here over fakes, and in TestShapes
// over real servers. Another behaviour is one line in the table of its theme (conformance_<theme>_test.go).

// behaviour is something every lock does, whatever its server.
type behaviour struct {
	name  string
	test  func(t *testing.T, w *world)
	alone bool // it needs a server that nobody else uses
	timed bool // it waits for long: over real servers it is run with LOCKDOG_FULL only
}

// theme is a table of the suite.
type theme struct {
	name  string
	table []behaviour
}

// themes are for all that gives leases.
var themes = []theme{
	{"take", takeBehaviours},
	{"wait", waitBehaviours},
	{"lease", leaseBehaviours},
	{"context", contextBehaviours},
	{"reentry", reentryBehaviours},
	{"do", doBehaviours},
	{"close", closeBehaviours},
	{"input", inputBehaviours},
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, k := range append([]kindOfLock{quorums, pairs}, allKinds...) {
		for _, theme := range themes {
			for _, b := range theme.table {
				if k.why(b.name) != "" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s", k.name, b.name), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { b.test(t, openFake(t, k)) })
				})
			}
		}
	}
	for _, theme := range []theme{numbers, mixed, deadlocks} {
		for _, b := range theme.table {
			t.Run(theme.name+"/"+b.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { b.test(t, openFake(t, kindOfLock{})) })
			})
		}
	}
}

//go:build interop

package interop_test

import (
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// shapes of Redis differ in how releases are published.
var shapes = []string{"single", "cluster"}

// ofKind is asserted of each kind that it is for.
var ofKind = []struct {
	name string
	part func(*testing.T, *rig, *kind)
	is   func(*kind) bool
}{
	{"excludes", testExcludes, (*kind).any},
	{"java reenters", testJavaReentry, (*kind).isLock},
	{"go reenters", testGoReentry, (*kind).isLock},
	{"remaining time", testRemaining, (*kind).isLock},
	{"metadata", testMetadata, (*kind).isLock},
	{"metadata under java", testMetadataUnderJava, func(k *kind) bool { return k.isLock() && !k.readWrite() }},
	{"java forces", testJavaForces, (*kind).isLock},
	{"go forces", testGoForces, (*kind).isLock},
	{"permits agree", testPermitsAgree, func(k *kind) bool { return k.permits }},
}

// ofOne is particular to one.
var ofOne = map[string]func(*testing.T, *rig){
	"watchdogs":    testWatchdogs,
	"java crashes": testJavaCrash,
	"go crashes":   testGoCrash,

	"fair/order":        testFairOrder,
	"fair/turn":         testFairTurn,
	"fair/gives up":     testFairGivesUp,
	"fair/waiter dies":  testFairWaiterDies,
	"fair/keeps places": testFairKeepsPlaces,

	"read-write/together":         testReadersTogether,
	"read-write/last reader":      testLastReaderWakes,
	"read-write/downgrades":       testDowngrades,
	"read-write/readers keep":     testReadersKeep,
	"read-write/reader crashes":   testReaderCrashes,
	"read-write/readers forced":   testReadersForced,
	"read-write/writer preferred": testWriterPreferred,

	"semaphore/many": testManyPermits,
	"permits/leases": testLeasedPermits,
	"latch/agrees":   testLatchAgrees,
	"multi":          testMulti,
	"latch/names":    testLatchNames,
}

// TestInterop asserts the same of each shape: first what is measured, by itself, then all that mostly waits, at the same time.
func TestInterop(t *testing.T) {
	rigs := make(map[string]*rig, len(shapes))
	for _, shape := range shapes {
		rigs[shape] = startRig(t, shape)
	}
	for _, shape := range shapes {
		r := rigs[shape].ready(t)
		t.Logf("Redisson %s", r.java.version())
		t.Run(shape, func(t *testing.T) {
			for i := range kinds {
				t.Run("wakes/"+kinds[i].name, func(t *testing.T) { testWakes(t, r, &kinds[i]) })
			}
			t.Run("wakes/latch", func(t *testing.T) { testLatchWakes(t, r) })
			t.Run("alternates", func(t *testing.T) { testAlternates(t, r, false) })
			t.Run("alternates with shared tokens", func(t *testing.T) { testAlternates(t, r, true) })
		})
	}
	for _, shape := range shapes {
		t.Run("together/"+shape, func(t *testing.T) {
			t.Parallel()
			testTogether(t, rigs[shape])
		})
	}
}

func testTogether(t *testing.T, r *rig) {
	for name, part := range ofOne {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(t, r)
		})
	}
	for i := range kinds {
		for _, one := range ofKind {
			if !one.is(&kinds[i]) {
				continue
			}
			t.Run(kinds[i].name+"/"+one.name, func(t *testing.T) {
				t.Parallel()
				one.part(t, r, &kinds[i])
			})
		}
	}
}

//go:build interop

package interop_test

import (
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// shapes of Redis differ in how releases are published.
var shapes = []string{"single", "cluster"}

// TestInterop asserts the same of each shape.
func TestInterop(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape, func(t *testing.T) {
			r := newRig(t, shape)
			t.Logf("Redisson %s", r.java.version())

			// Those that measure, before those that run at the same time.
			t.Run("wakes", func(t *testing.T) { testWakes(t, r) })
			t.Run("alternates", func(t *testing.T) { testAlternates(t, r) })

			t.Run("together", func(t *testing.T) {
				for name, part := range map[string]func(*testing.T, *rig){
					"excludes":            testExcludes,
					"watchdogs":           testWatchdogs,
					"java crashes":        testJavaCrash,
					"go crashes":          testGoCrash,
					"java reenters":       testJavaReentry,
					"go reenters":         testGoReentry,
					"remaining time":      testRemaining,
					"metadata":            testMetadata,
					"metadata under java": testMetadataUnderJava,
					"java forces":         testJavaForces,
					"go forces":           testGoForces,
				} {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						part(t, r)
					})
				}
			})
		})
	}
}

package lock_test

import (
	"flag"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

func TestMain(m *testing.M) {
	if !lock.Full {
		_ = flag.Set("rapid.checks", "25")
	}
	redistest.Main(m, redistest.FailoverClusterLeak()...)
}

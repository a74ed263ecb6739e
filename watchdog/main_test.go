package watchdog_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// full is for `make nightly`: more random histories, more leases, and for longer.
var full = os.Getenv("LOCKDOG_FULL") != ""

func TestMain(m *testing.M) {
	checks := flag.Lookup("rapid.checks").Value
	_ = checks.Set("100")
	flag.Parse()
	if full {
		_ = checks.Set("2000")
	}
	goleak.VerifyTestMain(m)
}

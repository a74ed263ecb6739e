package watchdog_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var full = flag.Bool("full", false, "the long forms: more random histories, more leases, and for longer")

func TestMain(m *testing.M) {
	checks := flag.Lookup("rapid.checks").Value
	_ = checks.Set("25")
	flag.Parse()
	if *full {
		_ = checks.Set("2000")
	}
	goleak.VerifyTestMain(m)
}

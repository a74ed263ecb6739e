package leader_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// full is for `make nightly`: candidates come and go for longer.
var full = os.Getenv("LOCKDOG_FULL") != ""

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

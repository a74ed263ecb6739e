package leader_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var full = flag.Bool("full", false, "the long forms: candidates come and go for longer")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

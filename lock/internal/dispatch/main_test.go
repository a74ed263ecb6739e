package dispatch

import (
	"os"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
)

// full is for `make nightly`: more random batches, and crowds that stay for longer.
var full = os.Getenv("LOCKDOG_FULL") != ""

func TestMain(m *testing.M) { redistest.Main(m) }

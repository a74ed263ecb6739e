package memory_test

import (
	"os"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
)

// full is for `make nightly`: more random commands.
var full = os.Getenv("LOCKDOG_FULL") != ""

func TestMain(m *testing.M) { redistest.Main(m) }

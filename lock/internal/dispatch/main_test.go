package dispatch

import (
	"flag"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
)

var full = flag.Bool("full", false, "the long forms: more random batches, and crowds that stay for longer")

func TestMain(m *testing.M) { redistest.Main(m) }

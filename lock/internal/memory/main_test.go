package memory_test

import (
	"flag"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
)

var full = flag.Bool("full", false, "the long forms: more random commands")

func TestMain(m *testing.M) { redistest.Main(m) }

package backend_test

import (
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

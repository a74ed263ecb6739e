package probe_test

import (
	"strings"
	"testing"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/probe"
	"github.com/lockdog/lockdog/internal/hashslot"
)

// Names stay in one slot, so that runs leave one token counter.
func TestName(t *testing.T) {
	if got := hashslot.Of("123456789"); got != 12739 {
		t.Errorf("slot %d, want 12739, as the Cluster specification has it", got)
	}
	if hashslot.Of("a{b}c") != hashslot.Of("b") || hashslot.Of("a{}c") == hashslot.Of("") {
		t.Error("hash tags")
	}
	a, b := probe.Name("p:", "job", "base"), probe.Name("p:", "job", "base")
	if a == b || hashslot.Of("p:"+a) != hashslot.Of("p:"+b) || !strings.HasPrefix(a, "job:base-") {
		t.Errorf("%q and %q", a, b)
	}
}

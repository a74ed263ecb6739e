package probe_test

import (
	"strings"
	"testing"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/probe"
)

// Names stay in one slot, so that runs leave one token counter.
func TestName(t *testing.T) {
	if got := probe.SlotOf("123456789"); got != 12739 {
		t.Errorf("slot %d, want 12739, as the Cluster specification has it", got)
	}
	if probe.SlotOf("a{b}c") != probe.SlotOf("b") || probe.SlotOf("a{}c") == probe.SlotOf("") {
		t.Error("hash tags")
	}
	a, b := probe.Name("p:", "job", "base"), probe.Name("p:", "job", "base")
	if a == b || probe.SlotOf("p:"+a) != probe.SlotOf("p:"+b) || !strings.HasPrefix(a, "job:base-") {
		t.Errorf("%q and %q", a, b)
	}
}

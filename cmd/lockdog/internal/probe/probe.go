// Package probe makes names for locks with which commands test a Redis. No program uses these names.
package probe

import (
	"crypto/rand"
	"strings"

	"github.com/lockdog/lockdog/internal/hashslot"
)

// Name returns an unused name. It begins with name, if that isn't "", and base. prefix is the key prefix, which isn't
// part of the name. All names with the same beginning are in one slot, and so share one token counter: any number of
// runs leaves only one.
func Name(prefix, name, base string) string {
	if name != "" {
		base = name + ":" + base
	}
	for slot := hashslot.Of(prefix + base); ; {
		if probe := base + "-" + strings.ToLower(rand.Text()[:10]); hashslot.Of(prefix+probe) == slot {
			return probe
		}
	}
}

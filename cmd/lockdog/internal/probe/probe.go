// Package probe names locks that commands take to try a Redis out, and that no program uses.
package probe

import (
	"crypto/rand"
	"strings"

	"github.com/lockdog/lockdog/internal/hashslot"
)

// Name is a name that nobody uses. It begins with name, if that isn't "", and base. All with the same beginning share a slot, and with it a token counter, so
// that many runs leave one counter. prefix is that of keys, which isn't in the name.
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

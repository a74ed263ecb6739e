// Package probe names locks that commands take to try a Redis out, and that no program uses.
package probe

import (
	"crypto/rand"
	"strings"
)

// Name is a name that nobody uses. It begins with name, if that isn't "", and base. All with the same beginning share a slot, and with it a token counter, so
// that many runs leave one counter. prefix is that of keys, which isn't in the name.
func Name(prefix, name, base string) string {
	if name != "" {
		base = name + ":" + base
	}
	for slot := SlotOf(prefix + base); ; {
		if probe := base + "-" + strings.ToLower(rand.Text()[:10]); SlotOf(prefix+probe) == slot {
			return probe
		}
	}
}

// Slots is how many a Cluster has.
const Slots = 16384

// SlotOf is the hash slot of a key.
func SlotOf(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % Slots
}

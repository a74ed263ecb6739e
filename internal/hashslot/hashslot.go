// Package hashslot computes the hash slots of a Redis Cluster.
package hashslot

import (
	"strconv"
	"strings"
	"sync"
)

// Count is the number of hash slots of a Redis Cluster.
const Count = 16384

// Tagged returns the hash tag of a key, and reports whether the key has one. Of such a key, Redis Cluster hashes only
// the tag.
func Tagged(key string) (string, bool) {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return "", false
	}
	tag, _, ok := strings.Cut(rest, "}")
	return tag, ok && tag != ""
}

// Of returns the hash slot of a key.
func Of(key string) int {
	if tag, ok := Tagged(key); ok {
		key = tag
	}
	return int(crc16(key)) % Count
}

// Tag returns the smallest decimal integer that hashes to a slot.
func Tag(slot int) string { return tags()[slot] }

var tags = sync.OnceValue(func() *[Count]string {
	var all [Count]string
	for n, missing := 0, Count; missing > 0; n++ {
		tag := strconv.Itoa(n)
		if slot := int(crc16(tag)) % Count; all[slot] == "" {
			all[slot] = tag
			missing--
		}
	}
	return &all
})

// crcTable is the table of CRC-16/XMODEM, with which Redis Cluster hashes keys.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		c := uint16(i) << 8
		for range 8 {
			if c&0x8000 != 0 {
				c = c<<1 ^ 0x1021
			} else {
				c <<= 1
			}
		}
		t[i] = c
	}
	return t
}()

func crc16(s string) uint16 {
	var c uint16
	for i := range len(s) {
		c = c<<8 ^ crcTable[byte(c>>8)^s[i]]
	}
	return c
}

package backend

import (
	"strconv"
	"strings"
	"sync"
)

// Slots is the number of hash slots of a Redis Cluster.
const Slots = 16384

// HashTag returns what Redis Cluster hashes of a key that has a tag.
func HashTag(key string) (string, bool) {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return "", false
	}
	tag, _, ok := strings.Cut(rest, "}")
	return tag, ok && tag != ""
}

// SlotOf is the hash slot of a key.
func SlotOf(key string) int {
	if tag, ok := HashTag(key); ok {
		key = tag
	}
	return int(crc16(key)) % Slots
}

// SlotTag is the smallest decimal integer that hashes to a slot.
func SlotTag(slot int) string { return slotTags()[slot] }

var slotTags = sync.OnceValue(func() *[Slots]string {
	var tags [Slots]string
	for n, missing := 0, Slots; missing > 0; n++ {
		tag := strconv.Itoa(n)
		if slot := int(crc16(tag)) % Slots; tags[slot] == "" {
			tags[slot] = tag
			missing--
		}
	}
	return &tags
})

// crcTable is CRC-16/XMODEM, which Redis Cluster hashes keys with.
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

package lock

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxNameBytes bounds a lock's name: it travels in every command, log line and span.
const maxNameBytes = 1024

// checkName says what is wrong with the name of a lock, prefix included.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the lock's name is empty", ErrInvalid)
	case len(name) > maxNameBytes:
		return fmt.Errorf("%w: the lock's name %.32q… has %d bytes, at most %d are allowed", ErrInvalid, name, len(name), maxNameBytes)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the lock's name %q is not valid UTF-8", ErrInvalid, name)
	}
	return checkBraces("the lock's name", name)
}

// checkBraces rejects text whose braces give no hash tag: in a cluster the lock and its channel, which
// gets braces of its own only where the name has none, would live in different slots.
func checkBraces(what, s string) error {
	if !strings.ContainsAny(s, "{}") {
		return nil
	}
	if _, ok := hashTag(s); !ok {
		return fmt.Errorf("%w: %s %q has braces that are no hash tag; use none, or one non-empty {tag}", ErrInvalid, what, s)
	}
	return nil
}

// hashTag returns what Redis Cluster hashes of a key that has a tag.
func hashTag(key string) (string, bool) {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return "", false
	}
	tag, _, ok := strings.Cut(rest, "}")
	return tag, ok && tag != ""
}

// channelOf is the channel on which the release of a lock is published: Redisson's, so that Go and Java
// holders wake each other's waiters.
func channelOf(key string) string {
	if strings.Contains(key, "{") {
		return "redisson_lock__channel:" + key
	}
	return "redisson_lock__channel:{" + key + "}"
}

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// slotOf is the hash slot of a key.
func slotOf(key string) int {
	if tag, ok := hashTag(key); ok {
		key = tag
	}
	return int(crc16(key)) % slots
}

// fenceKey is the counter that a lock draws its tokens from: one per slot, so that their number is bounded
// however many names there are, and in the lock's own slot, so that one script may use both.
func fenceKey(prefix, key string) string {
	return prefix + "lockdog:fence:{" + slotTags()[slotOf(key)] + "}"
}

// slotTags holds for every slot the smallest decimal integer that hashes to it.
var slotTags = sync.OnceValue(func() *[slots]string {
	var tags [slots]string
	for n, missing := 0, slots; missing > 0; n++ {
		tag := strconv.Itoa(n)
		if slot := int(crc16(tag)) % slots; tags[slot] == "" {
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

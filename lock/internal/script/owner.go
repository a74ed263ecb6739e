package script

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// OwnerRandomBytes is how many random bytes tell a client from others with its id.
const OwnerRandomBytes = 8

// WriteSuffix ends the owner of a write lease, as it does Redisson's.
const WriteSuffix = ":write"

// ClientOf returns the id and the random digits of the client in an owner of lockdog, "" for any other: "<id>:<random>-<number>", and for writers
// ":write" after it.
func ClientOf(owner string) (id, random string) {
	id, rest, _ := strings.Cut(owner, ":")
	random, number, _ := strings.Cut(strings.TrimSuffix(rest, WriteSuffix), "-")
	if _, err := strconv.ParseUint(number, 10, 64); err != nil {
		return "", ""
	}
	if bytes, err := hex.DecodeString(random); err != nil || len(bytes) != OwnerRandomBytes {
		return "", ""
	}
	return id, random
}

// ClientIDOf returns the id in an owner of lockdog, "" for any other.
func ClientIDOf(owner string) string {
	id, _ := ClientOf(owner)
	return id
}

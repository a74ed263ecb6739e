package script

import (
	"encoding/hex"
	"regexp"
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

// ownerFormat is an owner as lockdog or Redisson names one: "<client id>:<16 hex digits>-<number>", or "<id>:<thread>". One in a transaction of Redisson
// has 32 hex digits after it.
var ownerFormat = regexp.MustCompile(`^((?s:.+):-?[0-9]+|[^:]+:[0-9A-Fa-f]{16}-[0-9]+)(` + WriteSuffix + `)?(:[0-9A-Fa-f]{32})?$`)

// IsOwner reports whether a field is an owner of a lock. A hash that has others is no lock: see foreign.lua.
func IsOwner(field string) bool { return ownerFormat.MatchString(field) }

// countFormat is how often an owner has entered.
var countFormat = regexp.MustCompile(`^[1-9][0-9]{0,9}$`)

// IsCount reports whether a field's value is how often an owner has entered.
func IsCount(value string) bool { return countFormat.MatchString(value) }

// numberFormat is the number of a semaphore or a latch, but for its length.
var numberFormat = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// IsNumber reports whether a key holds the number of a semaphore or a latch.
func IsNumber(value string) bool { return len(value) < 16 && numberFormat.MatchString(value) }

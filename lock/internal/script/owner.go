package script

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
)

// OwnerRandomBytes is how many random bytes distinguish a client from others with the same id.
const OwnerRandomBytes = 8

// WriteSuffix ends the owner of a write lease, in lockdog as in Redisson.
const WriteSuffix = ":write"

// NewSecret returns a secret for a new client. It proves to the agent which owners are the client's.
func NewSecret() string { return rand.Text() }

// DigitsOf returns the random digits in the owners of the client that has a secret. They are a part of its SHA-256, so
// an owner doesn't reveal the secret.
func DigitsOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:OwnerRandomBytes])
}

// ClientOf returns the id and the random digits of the client in an owner of lockdog, "" for any other owner. An owner
// of lockdog is "<id>:<random>-<number>", with WriteSuffix for a writer.
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

// ClientIDOf returns the client's id in an owner of lockdog, "" for any other owner.
func ClientIDOf(owner string) string {
	id, _ := ClientOf(owner)
	return id
}

// CutReleased returns the owner in a field of a lock's hash, and whether it has released the lock, which stays taken
// for a while: see retain.lua.
func CutReleased(field string) (owner string, released bool) {
	return strings.CutSuffix(field, ":released")
}

// transactionDigits is how many hex digits a transaction of Redisson adds to an owner.
const transactionDigits = 32

// IsOwner reports whether a field has the form of an owner of lockdog, "<client id>:<16 hex digits>-<number>", or of
// Redisson, "<id>:<thread>". A suffix for a writer or for a transaction may follow. A hash whose owners have another
// form is no lock, unless it has MetaField: see foreign.lua. isOwner in owner.lua decides in the same way.
func IsOwner(field string) bool {
	if isNamed(field) {
		return true
	}
	i := strings.LastIndexByte(field, ':')
	return i > 0 && len(field)-i-1 == transactionDigits && isMadeOf(field[i+1:], hexDigits) && isNamed(field[:i])
}

func isNamed(owner string) bool {
	owner = strings.TrimSuffix(owner, WriteSuffix)
	i := strings.LastIndexByte(owner, ':')
	if i <= 0 {
		return false
	}
	id, rest := owner[:i], owner[i+1:]
	if isMadeOf(strings.TrimPrefix(rest, "-"), digits) {
		return true
	}
	random, number, _ := strings.Cut(rest, "-")
	return !strings.Contains(id, ":") && len(random) == 2*OwnerRandomBytes &&
		isMadeOf(random, hexDigits) && isMadeOf(number, digits)
}

const (
	digits    = "0123456789"
	hexDigits = digits + "abcdefABCDEF"
)

// isMadeOf reports whether a text isn't empty and has only the given characters.
func isMadeOf(text, characters string) bool {
	return text != "" && strings.Trim(text, characters) == ""
}

// IsCount reports whether a field's value may be the number of times that an owner has entered.
func IsCount(value string) bool {
	return len(value) <= 10 && isMadeOf(value, digits) && value[0] != '0'
}

// numberFormat matches what a semaphore (its free permits) or a latch (its count) stores in its key, of any length.
var numberFormat = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// IsNumber reports whether a key's value may be that of a semaphore or a latch.
func IsNumber(value string) bool { return len(value) < 16 && numberFormat.MatchString(value) }

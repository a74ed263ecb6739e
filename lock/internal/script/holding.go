package script

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// Holding is the form in which Redis stores that an owner holds a lock.
type Holding uint8

// The forms of holding.
const (
	HoldsField  Holding = iota // a field in the lock's hash
	HoldsMark                  // a field in a read-write lock's hash, and a key with an expiry: see rw.lua
	HoldsPermit                // a member of a semaphore's sorted set
)

// Key returns the key that stores the owners of a lock.
func (h Holding) Key(lock string) string {
	if h == HoldsPermit {
		return PermitsKey(lock)
	}
	return lock
}

// StoredOwner returns the field or member that stands for an owner in Key. Redisson's permits have 16 bytes. In ours
// the first 8 are the random bytes of the client, and the others are the number of the grant.
func (h Holding) StoredOwner(owner string) string {
	if h != HoldsPermit {
		return owner
	}
	head, seq, _ := strings.Cut(owner[strings.LastIndexByte(owner, ':')+1:], "-")
	n, _ := strconv.ParseUint(seq, 10, 64)
	id, _ := hex.DecodeString(head)
	return string(binary.BigEndian.AppendUint64(id, n))
}

// kind returns the name of the Holding in renew.lua.
func (h Holding) kind() string { return [...]string{HoldsMark: "r", HoldsPermit: "p"}[h] }

package script

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// Holding is how Redis knows that an owner holds a lock.
type Holding uint8

// The kinds of holding.
const (
	HoldsField  Holding = iota // by a field in the lock's hash
	HoldsMark                  // by a field in a read-write lock's hash, and a key beside it
	HoldsPermit                // by a member of a sorted set beside the lock
)

// Key is where the owners are.
func (h Holding) Key(lock string) string {
	if h == HoldsPermit {
		return PermitsKey(lock)
	}
	return lock
}

// Member is what stands for an owner there. For a permit Redisson wants 16 bytes: the first 8 are the random ones of the client, the others number
// the grant.
func (h Holding) Member(owner string) string {
	if h != HoldsPermit {
		return owner
	}
	head, seq, _ := strings.Cut(owner[strings.LastIndexByte(owner, ':')+1:], "-")
	n, _ := strconv.ParseUint(seq, 10, 64)
	id, _ := hex.DecodeString(head)
	return string(binary.BigEndian.AppendUint64(id, n))
}

// kind is how renew.lua names it.
func (h Holding) kind() string { return [...]string{HoldsMark: "r", HoldsPermit: "p"}[h] }

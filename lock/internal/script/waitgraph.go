package script

import "time"

// Both follow the key prefix: waitsPart in the name of a client's hash of waits, waitingKey as the name of the set of
// the clients that have such a hash.
const (
	waitsPart  = "lockdog:waits:"
	waitingKey = "lockdog:waiting"
)

// WaitsKey returns the key of a client's long waits. The argument random has the random digits in the client's owners.
// The key is a hash: owner of a lease -> waits whose ctx carries the lease, or whose Multi has taken it, encoded by
// package waitgraph. A wait that carries no lease is in the field of the waiter's owner. The random digits are the hash
// tag, so that the keys of clients are in different slots.
func WaitsKey(prefix, random string) string { return prefix + waitsPart + "{" + random + "}" }

// WaitingKey returns the key of the clients that have long waits: their random digits -> expiry, ms.
func WaitingKey(prefix string) string { return prefix + waitingKey }

// WaitsLife is how long the keys of a client's waits live without a refresh.
const WaitsLife = 5 * time.Second

// The scripts of the wait graph.
var (
	WaitsWrite  = load("waits_write", "clock")
	WaitsEnlist = load("waits_enlist", "clock")
	WaitsRead   = load("waits_read")
	WaitsNotify = load("waits_notify")
	Holders     = load("holders")
)

// WaitsChange is a change of a client's hash of waits.
type WaitsChange struct {
	Anew   bool     // all fields that aren't in Set are removed
	Remove []string // fields
	Set    []string // field, value, field, value, ...
}

// WaitsWriteArgs makes r a call of waits_write.lua. The call also sets the key's expiry to WaitsLife.
func WaitsWriteArgs(r *Request, key string, change WaitsChange) {
	r.start(WaitsWrite)
	r.Keys = append(r.Keys, key)
	r.addNotAfter()
	anew := 0
	if change.Anew {
		anew = 1
	}
	r.Args = append(r.Args, WaitsLife.Milliseconds(), anew, len(change.Remove))
	for _, field := range change.Remove {
		r.Args = append(r.Args, field)
	}
	for _, word := range change.Set {
		r.Args = append(r.Args, word)
	}
}

// WaitsWriteReply is the reply of waits_write.lua.
type WaitsWriteReply struct {
	Now   int64 // Redis's time, µs
	Late  bool  // the call came after its not-after, and wrote nothing
	Known bool  // the key existed, or the change was Anew
}

// ParseWaitsWrite parses the reply of waits_write.lua.
func ParseWaitsWrite(reply any) (WaitsWriteReply, error) {
	_, nums, err := ints(reply, 2)
	if err != nil || nums[0] < 0 || nums[0] > 2 {
		return WaitsWriteReply{}, unreadable(reply)
	}
	return WaitsWriteReply{Now: nums[1], Late: nums[0] == 2, Known: nums[0] == 1}, nil
}

// WaitsEnlistArgs makes r a call of waits_enlist.lua for the client that has these random digits in its owners.
func WaitsEnlistArgs(r *Request, key, random string) {
	r.start(WaitsEnlist)
	r.Keys = append(r.Keys, key)
	r.Args = append(r.Args, random, WaitsLife.Milliseconds())
}

// WaitsReadArgs makes r a call of waits_read.lua. It reads the fields of these owners: see WaitsKey.
func WaitsReadArgs(r *Request, key string, owners []string) {
	r.start(WaitsRead)
	r.Keys = append(r.Keys, key)
	for _, owner := range owners {
		r.Args = append(r.Args, owner)
	}
}

// ParseWaitsRead returns how long ago the client refreshed its waits, and for each owner the text, "" for none. If the
// waits are gone, the age is WaitsLife.
func ParseWaitsRead(reply any, owners int) (age time.Duration, texts []string, err error) {
	list, nums, err := ints(reply, 1)
	if err != nil || len(list) > 1+owners { // fewer: nils at the end may be left out
		return 0, nil, unreadable(reply)
	}
	texts = make([]string, owners)
	for i, v := range list[1:] {
		switch v := v.(type) {
		case nil:
		case string:
			texts[i] = v
		default:
			return 0, nil, unreadable(reply)
		}
	}
	if nums[0] < 0 { // the key is gone; or it has no expiry, so no client of lockdog wrote it
		return WaitsLife, make([]string, owners), nil
	}
	return max(WaitsLife-Millis(nums[0]), 0), texts, nil
}

// HoldersArgs makes r a call of holders.lua.
func HoldersArgs(r *Request, lock string, most int) {
	r.start(Holders)
	r.Keys = append(r.Keys, lock)
	r.Args = append(r.Args, most)
}

// ParseHolders returns the owners in the lock's hash, none if there are more than HoldersArgs allowed, and the mode of
// a read-write lock, "" for any other lock. An owner that has released the lock is returned as retain.lua writes it.
func ParseHolders(reply any) (mode string, owners []string, err error) {
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return "", nil, unreadable(reply)
	}
	words := make([]string, len(list))
	for i, v := range list {
		if words[i], ok = v.(string); !ok {
			return "", nil, unreadable(reply)
		}
	}
	return words[0], words[1:], nil
}

// WaitsNotifyArgs makes r a call of waits_notify.lua. The lock must be one that the client holds, and no semaphore: the
// client hears what is published on its control channel at that lock's node.
func WaitsNotifyArgs(r *Request, lock, channel, message string) {
	r.start(WaitsNotify)
	r.Keys = append(r.Keys, lock)
	r.Args = append(r.Args, channel, message)
}

package script

// Count is a script that reads the number of a semaphore or a latch.
var Count = load("count", "number", "permits")

// Counting is what a call of count.lua counts.
type Counting uint8

// The last two are for a semaphore with leases.
const (
	CountNumber    Counting = iota // the number alone
	CountAvailable                 // the number and the permits whose lease has run out
	CountTotal                     // the number and all permits that were taken
)

// CountArgs makes r a call of count.lua.
func CountArgs(r *Request, key string, what Counting) {
	r.start(Count)
	r.Keys = append(r.Keys, key)
	if what != CountNumber {
		r.Keys = append(r.Keys, PermitsKey(key))
	}
	if what == CountTotal {
		r.Args = append(r.Args, "total")
	}
}

// ParseCount parses the reply of count.lua.
func ParseCount(reply any) (int, error) {
	n, ok := reply.(int64)
	if !ok {
		return 0, unreadable(reply)
	}
	return int(n), nil
}

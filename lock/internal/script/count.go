package script

// Count reads the number of a semaphore or a latch.
var Count = load("count")

// CountArgs makes r a call of count.lua. Of a semaphore with leases it counts permits whose lease has run out, too.
func CountArgs(r *Request, key string, leases bool) {
	r.start(Count)
	r.Keys = append(r.Keys, key)
	if leases {
		r.Keys = append(r.Keys, PermitsKey(key))
	}
}

// ParseCount reads the reply.
func ParseCount(reply any) (int, error) {
	n, ok := reply.(int64)
	if !ok {
		return 0, unreadable(reply)
	}
	return int(n), nil
}

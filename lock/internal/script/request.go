package script

import "github.com/lockdog/lockdog/lock/internal/backend"

// Request is the call of a script. The zero value is ready, and may be used for one script after the other: it has room for the keys and arguments
// of most of them.
type Request struct {
	backend.Call
	notAfter int // its place in Args, 0: the script takes none

	keys  [3]string
	boxed [2]any
	args  [13]any
}

// Lock is what scripts need to know of a lock.
type Lock struct {
	Key     string
	Counter any // the key of its token counter: a string, boxed; nil: none can be used
}

// start makes the request one of a script that has no arguments yet.
func (r *Request) start(s *backend.Script) {
	r.Call = backend.Call{Script: s, Keys: r.keys[:0], Args: r.args[:0]}
	r.notAfter = 0
}

// Reset lets go of what the request refers to.
func (r *Request) Reset() {
	r.Call = backend.Call{}
	r.notAfter = 0
	clear(r.keys[:])
	clear(r.boxed[:])
	clear(r.args[:])
}

// Expires reports whether the request has a not-after.
func (r *Request) Expires() bool { return r.notAfter > 0 }

// SetNotAfter sets the server time in µs after which the script must write nothing; 0 = unknown, as it is at first.
func (r *Request) SetNotAfter(at int64) { r.Args[r.notAfter] = at }

// addNotAfter has the not-after be the next argument.
func (r *Request) addNotAfter() {
	r.notAfter = len(r.Args)
	r.Args = append(r.Args, int64(0))
}

// layout puts the keys of a kind of lock into a request on behalf of an owner, "" = nobody.
type layout func(r *Request, l Lock, owner string)

func lockKey(r *Request, l Lock, _ string) { r.Keys = append(r.Keys, l.Key) }

func lockAndCounter(r *Request, l Lock, _ string) {
	if l.Counter == nil {
		r.Keys = append(r.Keys, l.Key)
		return
	}
	r.Keys, r.Boxed = append(r.Keys, l.Key, l.Counter.(string)), append(r.boxed[:0], l.Key, l.Counter)
}

func fairKeys(r *Request, l Lock, _ string) {
	r.Keys = append(r.Keys, l.Key, l.Counter.(string), QueueKey(l.Key), QueueTimeoutsKey(l.Key), QueueAliveKey(l.Key))
}

// rwKeys are described in rw.lua.
func rwKeys(r *Request, l Lock, owner string) {
	mark := markKeys(l.Key, owner)
	r.Keys = append(r.Keys, l.Key, l.Counter.(string), WritersKey(l.Key), suffixed(l.Key, "lockdog_turn"), mark+"1", mark+"0")
}

func permitKeys(r *Request, l Lock, _ string) {
	r.Keys = append(r.Keys, l.Key, PermitsKey(l.Key), l.Counter.(string))
}

// receiptAndPermitKeys are followed by the receipts that are spent.
func receiptAndPermitKeys(r *Request, l Lock, owner string) {
	r.Keys = append(r.Keys, l.Key, ReceiptKey(l.Key, owner), PermitsKey(l.Key))
}

// receiptKeys are followed by the receipts that are spent.
func receiptKeys(r *Request, l Lock, owner string) {
	r.Keys = append(r.Keys, l.Key, ReceiptKey(l.Key, owner))
}

package script

import "github.com/lockdog/lockdog/lock/internal/backend"

// Request is the call of a script. The zero value is ready to use. A Request may be reused for another script: it has
// room for the keys and arguments of most scripts.
type Request struct {
	backend.Call
	notAfter int // the number of the argument that is the not-after, from 1; 0: the script takes none

	keys  [3]string
	boxed [2]any
	args  [13]any
}

// Lock is a lock in Redis.
type Lock struct {
	Key     string
	Counter any // the key of its token counter: a string, boxed; nil: none can be used, as the lock's slot is moving
}

// start makes the request a call of a script, without keys and arguments.
func (r *Request) start(s *backend.Script) {
	r.Call = backend.Call{Script: s, Keys: r.keys[:0], Args: r.args[:0]}
	r.notAfter = 0
}

// Reset drops all references of the request.
func (r *Request) Reset() {
	r.Call = backend.Call{}
	r.notAfter = 0
	clear(r.keys[:])
	clear(r.boxed[:])
	clear(r.args[:])
}

// HasNotAfter reports whether the request has a not-after.
func (r *Request) HasNotAfter() bool { return r.notAfter > 0 }

// SetNotAfter sets the not-after: the server time in µs after which the script must write nothing, except that
// hand_over.lua may still release, and write_acquire.lua remove dead holders. 0, the first value, means unknown: there
// is no limit. The request must have a not-after: see HasNotAfter.
func (r *Request) SetNotAfter(at int64) { r.Args[r.notAfter-1] = at }

// addNotAfter adds the not-after as the next argument.
func (r *Request) addNotAfter() {
	r.Args = append(r.Args, int64(0))
	r.notAfter = len(r.Args)
}

// layout adds the keys of a kind of lock to a request. owner is "" if the script isn't called for an owner.
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

// rwKeys adds the keys that rw.lua describes.
func rwKeys(r *Request, l Lock, owner string) {
	mark := markKeys(l.Key, owner)
	r.Keys = append(r.Keys,
		l.Key, l.Counter.(string), WritersKey(l.Key), suffixed(l.Key, "lockdog_turn"), mark+"1", mark+"0")
}

func permitKeys(r *Request, l Lock, _ string) {
	r.Keys = append(r.Keys, l.Key, PermitsKey(l.Key), l.Counter.(string))
}

// receiptAndPermitKeys adds the keys that come before the receipts to delete.
func receiptAndPermitKeys(r *Request, l Lock, owner string) {
	r.Keys = append(r.Keys, l.Key, ReceiptKey(l.Key, owner), PermitsKey(l.Key))
}

// receiptKeys adds the keys that come before the receipts to delete.
func receiptKeys(r *Request, l Lock, owner string) {
	r.Keys = append(r.Keys, l.Key, ReceiptKey(l.Key, owner))
}

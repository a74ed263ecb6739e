package script

import "github.com/lockdog/lockdog/lock/internal/backend"

// Batch is a script that runs several calls of the scripts in batched. Each of these is a function in it.
var (
	batched = map[*backend.Script]any{
		Acquire.Script: "acquire", Release.Script: "release", HandOver.Script: "hand_over",
	}
	Batch = build("batch",
		read("clock", "token", "transfer", "holder", "owner", "foreign", "demoted", "channel", "marks", "tell"),
		"local operations = {}\n",
		function("operations.acquire", read("acquire")),
		function("operations.release", read("release_begin"), releaseRest()),
		function("operations.hand_over", handOver()),
		read("batch"))
)

// Batchable reports whether the request can be one of a batch.
func (r *Request) Batchable() bool { return batched[r.Script] != nil }

// BatchArgs are the keys and arguments of a call of batch.lua. They may be reused for another call.
type BatchArgs struct {
	keys  []string
	boxed []any
	args  []any
}

// The letters of batch.lua for a key or an argument: all requests have the same, or each has its own.
const (
	common = '='
	own    = '.'
)

// Batched is a Request, or embeds one.
type Batched interface{ request() *Request }

func (r *Request) request() *Request { return r }

// Pack puts requests into the batch. It changes their order: calls of one script with the same numbers of keys and
// arguments come one after the other. ParseBatch uses the new order.
func Pack[R Batched](b *BatchArgs, requests []R) {
	b.keys, b.boxed, b.args = b.keys[:0], b.boxed[:0], append(b.args[:0], 0)
	for left := requests; len(left) > 0; {
		first, count := left[0].request(), 1
		for i, each := range left {
			r := each.request()
			if i > 0 && r.Script == first.Script && len(r.Keys) == len(first.Keys) && len(r.Args) == len(first.Args) {
				left[count], left[i] = each, left[count]
				count++
			}
		}
		alike := left[:count]
		left = left[count:]

		head := len(b.args)
		b.args = append(b.args, batched[first.Script], count, nil, nil)
		keys, args := make([]byte, len(first.Keys)), make([]byte, len(first.Args))
		var sent []R
		for i := range keys {
			keys[i], sent = column(alike, func(r *Request) bool { return r.Keys[i] == first.Keys[i] })
			for _, each := range sent {
				r := each.request()
				b.keys = append(b.keys, r.Keys[i])
				if i < len(r.Boxed) {
					b.boxed = append(b.boxed, r.Boxed[i])
				} else {
					b.boxed = append(b.boxed, r.Keys[i])
				}
			}
		}
		for i := range args {
			args[i], sent = column(alike, func(r *Request) bool { return r.Args[i] == first.Args[i] })
			for _, each := range sent {
				b.args = append(b.args, each.request().Args[i])
			}
		}
		b.args[head+2], b.args[head+3] = string(keys), string(args)
	}
}

// column returns the letter of one key or argument, and the requests whose value is sent: all, or the first if all have
// the same value.
func column[R Batched](requests []R, same func(*Request) bool) (letter byte, sent []R) {
	for _, each := range requests {
		if !same(each.request()) {
			return own, requests
		}
	}
	return common, requests[:1]
}

// Call returns the call of the batch. With unnamed, the keys are in its arguments: in a cluster all keys that a call
// declares must be in one slot.
func (b *BatchArgs) Call(unnamed bool) backend.Call {
	if !unnamed {
		return backend.Call{Script: Batch, Keys: b.keys, Boxed: b.boxed, Args: b.args}
	}
	b.args[0] = len(b.args) + 1
	b.args = append(b.args, b.boxed...)
	return backend.Call{Script: Batch, RouteKey: b.keys[0], Args: b.args}
}

// Reset drops the references to the keys and arguments.
func (b *BatchArgs) Reset() {
	clear(b.keys)
	clear(b.boxed)
	clear(b.args)
}

// ParseBatch parses the reply for n requests, and calls the function each with the index and the reply of each request.
// The batch's reply has pairs of a number and a reply: so many successive requests have that reply. If ParseBatch
// fails, it may have called the function for some of the requests.
func ParseBatch(reply any, n int, each func(i int, reply any)) error {
	replies, _ := reply.([]any)
	done := 0
	for ; len(replies) >= 2; replies = replies[2:] {
		count, _ := replies[0].(int64)
		if count < 1 || count > int64(n-done) {
			return unreadable(reply)
		}
		for end := done + int(count); done < end; done++ {
			each(done, replies[1])
		}
	}
	if done < n || len(replies) > 0 {
		return unreadable(reply)
	}
	return nil
}

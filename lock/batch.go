package lock

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// sendBatch runs the calls in one script. It returns those that Redis refused, all or some: they did nothing, and each can be sent by itself,
// so that what is wrong with one (a key that an ACL forbids, say) is its error only.
//
// The locks of a cluster's node are of many slots, and unnamed in what the script is declared to use. Redis looks at each command of the
// script all the same: it refuses one whose key's slot is another node's, or has moved so far that the key is there. That is the first
// command of such a call, and by itself the call is redirected. The script isn't: what it may do at one node says nothing of the next.
func (t *transport) sendBatch(ctx context.Context, w *worker, unnamed bool) (refused []*call) {
	w.pack()
	batch := backend.Call{Script: script.Batch, Keys: w.keys, Boxed: w.boxed, Args: w.args}
	if unnamed {
		w.args[0] = len(w.args) + 1
		w.args = append(w.args, w.boxed...)
		batch = backend.Call{Script: script.Batch, Near: w.keys[0], Args: w.args}
	}
	// It counts as a command of the first one's purpose.
	reply, err := t.eval(ctx, w.aboard[0].purpose, batch)
	clear(w.keys)
	clear(w.boxed)
	clear(w.args)
	var answer redis.Error
	if errors.As(err, &answer) {
		if keptApart(err) { // of a proxy before a cluster, which will say so of all others
			t.apart.Store(true)
		}
		return w.aboard
	}
	if err == nil {
		err = w.unpack(reply)
	}
	for _, c := range w.aboard {
		if err != nil {
			c.reply, c.err = nil, err
			continue
		}
		text, failed := c.reply.(string)
		if !failed {
			continue
		}
		c.reply = nil
		keys := refusalOf(text).keys
		if !unnamed || keys == 0 {
			c.err = script.Error(text)
			continue
		}
		if keys == keysApart {
			t.apart.Store(true)
		}
		refused = append(refused, c)
	}
	return refused
}

// The letters of batch.lua.
const (
	common = '='
	own    = '.'
)

// pack makes the keys and arguments of batch.lua. It changes the order of the calls: those that are alike come together.
func (w *worker) pack() {
	w.keys, w.boxed, w.args = w.keys[:0], w.boxed[:0], append(w.args[:0], 0)
	for left := w.aboard; len(left) > 0; {
		first, count := left[0], 1
		for i, c := range left {
			if i > 0 && c.Script == first.Script && len(c.Keys) == len(first.Keys) && len(c.Args) == len(first.Args) {
				left[count], left[i] = c, left[count]
				count++
			}
		}
		alike := left[:count]
		left = left[count:]

		head := len(w.args)
		w.args = append(w.args, script.Batched[first.Script], count, nil, nil)
		keys, args := make([]byte, len(first.Keys)), make([]byte, len(first.Args))
		var sent []*call
		for i := range keys {
			keys[i], sent = column(alike, func(c *call) bool { return c.Keys[i] == first.Keys[i] })
			for _, c := range sent {
				w.keys = append(w.keys, c.Keys[i])
				if i < len(c.Boxed) {
					w.boxed = append(w.boxed, c.Boxed[i])
				} else {
					w.boxed = append(w.boxed, c.Keys[i])
				}
			}
		}
		for i := range args {
			args[i], sent = column(alike, func(c *call) bool { return c.Args[i] == first.Args[i] })
			for _, c := range sent {
				w.args = append(w.args, c.Args[i])
			}
		}
		w.args[head+2], w.args[head+3] = string(keys), string(args)
	}
}

// column returns the letter of one key or argument, and whose are sent: all calls', or that of one where all have the same.
func column(calls []*call, same func(*call) bool) (letter byte, sent []*call) {
	for _, c := range calls {
		if !same(c) {
			return own, calls
		}
	}
	return common, calls[:1]
}

// unpack gives each call its answer: batch.lua sends one for all in a row that have the same, after their number.
func (w *worker) unpack(reply any) error {
	answers, _ := reply.([]any)
	left := w.aboard
	for ; len(answers) >= 2; answers = answers[2:] {
		count, _ := answers[0].(int64)
		if count < 1 || count > int64(len(left)) {
			return script.Unreadable(reply)
		}
		for _, c := range left[:count] {
			c.reply = answers[1]
		}
		left = left[count:]
	}
	if len(left) > 0 || len(answers) > 0 {
		return script.Unreadable(reply)
	}
	return nil
}

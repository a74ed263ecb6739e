package dispatch

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// sendBatch runs the calls in one script. It returns those that Redis refused, all or some: they did nothing, and each can be sent by itself,
// so that what is wrong with one (a key that an ACL forbids, say) is its error only.
//
// The locks of a cluster's node are of many slots, and unnamed in what the script is declared to use. Redis looks at each command of the
// script all the same: it refuses one whose key's slot is another node's, or has moved so far that the key is there. That is the first
// command of such a call, and by itself the call is redirected. The script isn't: what it may do at one node says nothing of the next.
func (d *Dispatcher) sendBatch(ctx context.Context, w *worker, unnamed bool) (refused []*Call) {
	script.Pack(&w.batch, w.calls)
	// It counts as a command of the first one's purpose.
	reply, err := d.Eval(ctx, w.calls[0].purpose, w.batch.Call(unnamed))
	w.batch.Reset()
	var answer redis.Error
	if errors.As(err, &answer) {
		w.node.LearnKeys(err) // of a proxy before a cluster, for example, which will say so of all others
		return w.calls
	}
	if err == nil {
		err = w.unpack(reply)
	}
	for _, c := range w.calls {
		if err != nil {
			c.Reply, c.Err = nil, err
			continue
		}
		text, failed := c.Reply.(string)
		if !failed {
			continue
		}
		c.Reply = nil
		err := redisfail.ReplyError(text)
		if !unnamed || redisfail.Classify(err).Keys == 0 {
			c.Err = err
			continue
		}
		w.node.LearnKeys(err)
		refused = append(refused, c)
	}
	return refused
}

// unpack gives each call its reply.
func (w *worker) unpack(reply any) error {
	return script.ParseBatch(reply, len(w.calls), func(i int, reply any) { w.calls[i].Reply = reply })
}

package dispatch

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// sendBatch runs the calls in one script. It returns the calls that did nothing and still have to be sent one by one:
// all if Redis refused the script, otherwise (only if unnamed) those whose keys Redis refused. Sent alone, a call gets
// an error only for its own fault, such as a key that an ACL forbids.
//
// unnamed: the script doesn't declare its keys, because the locks of a cluster's node are of many slots. Redis still
// checks each command in the script. It refuses a command whose key belongs to another node, or has already moved there
// with its slot. A call that is sent alone follows the redirection. The whole script can't follow it: the other node
// may lack the keys of the other calls.
func (d *Dispatcher) sendBatch(ctx context.Context, w *worker, unnamed bool) (refused []*Call) {
	script.Pack(&w.batch, w.calls)
	// The script counts as one command, with the purpose of the first call.
	call := w.batch.Call(unnamed)
	call.Stream = w.stream
	reply, err := d.Eval(ctx, w.calls[0].purpose, call)
	w.batch.Reset()
	var answer redis.Error
	if errors.As(err, &answer) {
		w.node.NoteKeyFault(err) // a proxy in front of a cluster, for example, refuses all such scripts
		return w.calls
	}
	if err == nil {
		err = w.unpack(reply)
	}
	for _, c := range w.calls {
		if err != nil {
			c.value, c.err = nil, err
			continue
		}
		text, failed := c.value.(string)
		if !failed {
			continue
		}
		c.value = nil
		err := redisfail.ReplyError(text)
		if !unnamed || redisfail.Classify(err).Keys == 0 {
			c.err = err
			continue
		}
		w.node.NoteKeyFault(err)
		refused = append(refused, c)
	}
	return refused
}

func (w *worker) unpack(reply any) error {
	return script.ParseBatch(reply, len(w.calls), func(i int, reply any) { w.calls[i].value = reply })
}

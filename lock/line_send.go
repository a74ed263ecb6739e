package lock

import (
	"context"
	"slices"
	"strings"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// send keeps the connection's channels equal to the topics, until stop. It closes the connection when it can't send,
// and when there is no topic left, which it reports.
func (ln *line) send(conn backend.PubSub, stop <-chan struct{}) (unwanted bool, err error) {
	for {
		subscribe, unsubscribe, none := ln.changes()
		if !none {
			if err = ln.write(subscribe, conn.Subscribe); err == nil {
				err = ln.write(unsubscribe, conn.Unsubscribe)
			}
		}
		if none || err != nil {
			_ = conn.Close()
			return none, err
		}
		select {
		case <-ln.kick:
		case <-stop:
			return false, nil
		}
	}
}

// changes takes what is to be sent.
func (ln *line) changes() (subscribe, unsubscribe []string, none bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for channel := range ln.changed {
		tp := ln.topics[channel]
		switch {
		case tp == nil:
			if _, ok := ln.stray[channel]; ok {
				unsubscribe = append(unsubscribe, channel)
				ln.leaving[channel]++
			}
		case len(tp.listeners) == 0:
			if tp.sent {
				unsubscribe = append(unsubscribe, channel)
				ln.leaving[channel]++
			}
			ln.remove(tp)
		case !tp.sent:
			tp.sent = true
			subscribe = append(subscribe, channel)
		}
	}
	clear(ln.changed)
	clear(ln.stray)
	slices.SortFunc(subscribe, func(a, b string) int { return strings.Compare(b, a) }) // a lock's channel after those that begin with it: see callee
	return subscribe, unsubscribe, len(ln.topics) == 0
}

func (ln *line) write(channels []string, command func(context.Context, ...string) error) error {
	for _, together := range ln.parcel(channels) {
		err := command(ln.ctx, together...)
		if !redisfail.IsUnsent(err) {
			ln.rec.Command(telemetry.PurposeSubscribe)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parcel cuts the channels into those that one command may have.
func (ln *line) parcel(channels []string) [][]string {
	ln.mu.Lock()
	most := maxChannelsPerWrite
	if ln.singly {
		most = 1
	}
	ln.mu.Unlock()
	if !ln.backend.Traits().OneSlot || ln.at.Bus {
		return slices.Collect(slices.Chunk(channels, most))
	}
	bySlot := make(map[int][]string)
	for _, c := range channels {
		bySlot[backend.SlotOf(c)] = append(bySlot[backend.SlotOf(c)], c)
	}
	var out [][]string
	for _, together := range bySlot {
		out = slices.AppendSeq(out, slices.Chunk(together, most))
	}
	return out
}

package pubsub

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

const maxChannelsPerCommand = 500

// send subscribes and unsubscribes channels as they change, and checks the server, until ctx ends or a command can't be
// sent. It returns errUnwanted when no subscription is left.
func (s *subscriber) send(ctx context.Context, conn *connection) error {
	checked := time.Now()
	tick := time.NewTimer(waitingTimeout)
	defer tick.Stop()
	for {
		subscribe, unsubscribe, err := s.changes()
		if err == nil {
			err = s.write(conn, subscribe, conn.Subscribe)
		}
		if err == nil {
			err = s.write(conn, unsubscribe, conn.Unsubscribe)
		}
		if err != nil {
			return err
		}
		select {
		case <-s.kick:
		case <-tick.C:
			if now := time.Now(); now.Sub(checked) >= s.timeout() {
				checked = now
				s.check(conn, 0)
			}
			tick.Reset(waitingTimeout)
		case <-ctx.Done():
			return nil
		}
	}
}

// changes returns the channels to subscribe and to unsubscribe.
func (s *subscriber) changes() (subscribe, unsubscribe []string, err error) {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	for channel := range s.changed {
		sub := s.subs[channel]
		switch {
		case sub == nil:
		case len(sub.listeners) == 0:
			if sub.state != pending {
				unsubscribe = append(unsubscribe, channel)
			}
			delete(s.subs, channel)
		case sub.on(sent):
			subscribe = append(subscribe, channel)
		}
	}
	clear(s.changed)
	if len(s.subs) == 0 {
		return nil, nil, errUnwanted
	}
	slices.SortFunc(subscribe, longerFirst)
	return subscribe, unsubscribe, nil
}

// longerFirst orders a channel before those whose names are prefixes of its own: see Mux.Listen.
func longerFirst(a, b string) int { return strings.Compare(b, a) }

func (s *subscriber) write(conn *connection, channels []string, command func(context.Context, ...string) error) error {
	m := s.mux
	for _, some := range s.split(conn, channels) {
		err := command(m.ctx, some...)
		if !redisfail.IsUnsent(err) {
			m.cfg.Recorder.Command(telemetry.PurposeSubscribe)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// split returns the channels of each command.
func (s *subscriber) split(conn *connection, channels []string) (commands [][]string) {
	most := maxChannelsPerCommand
	s.mux.mu.Lock()
	if conn.singly {
		most = 1
	}
	s.mux.mu.Unlock()
	bySlot := make(map[int][]string)
	for _, channel := range channels {
		slot := 0
		if s.mux.cfg.Backend.Traits().SubscribeOneSlot && !s.at.Bus {
			slot = hashslot.Of(channel)
		}
		bySlot[slot] = append(bySlot[slot], channel)
	}
	for _, together := range bySlot {
		commands = slices.AppendSeq(commands, slices.Chunk(together, most))
	}
	return commands
}

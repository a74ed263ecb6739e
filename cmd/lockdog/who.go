package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock/fleet"
)

func (a *app) whoCommand() *cobra.Command {
	var traces traceURL
	cmd := &cobra.Command{
		Use:   "who NAME",
		Short: "Show who holds a lock, and who waits for it",
		Long: `Show the holders of a lock: owner, client, token, since when, the trace in which it was taken, and what is left of the lease unless it is renewed; and
who waits, the first first. It changes nothing. A holder is named by its WithClientID, which is host/pid unless the program gave another. lockdog run is
user@host/pid.

A holder that lives renews its lease every third of it, so what is left jumps up again. If it only falls, the holder is dead, stopped or cut off: the lock is free
when nothing is left, and nothing has to be done. A holder that renews and hangs keeps the lock until it is ended, or the lock taken away: 'lockdog unlock -h'.

Exits with 0 if the lock is held, with 1 if it is free, with 64 if the key holds no lock, and with 69 if Redis can't be read.`,
		Args: args(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, reader, err := a.reader(cmd.Context())
			if err != nil {
				return err
			}
			l, err := reader.Look(cmd.Context(), args[0])
			if err != nil {
				return unread(cmd.Context(), err)
			}
			err = a.print(lockText(l, traces), traces.view(l))
			if err == nil && l.Held == 0 && l.Kind != fleet.Number {
				return &exitError{code: exitNo}
			}
			return err
		},
	}
	traceFlag(cmd, &traces)
	return cmd
}

// lockText describes a lock, its holders and its waiters, for people.
func lockText(l fleet.Lock, traces traceURL) string {
	var rows text.Rows
	row := func(name, value string) {
		if value != "" {
			rows.Add(name, value)
		}
	}
	state := "free"
	switch {
	case l.Kind == fleet.Number:
		state = fmt.Sprintf("the number %d: an unleased semaphore, a latch, or a semaphore of which no permit is held",
			l.Available)
	case l.Kind == fleet.Semaphore:
		permits := "permits"
		if l.Held == 1 {
			permits = "permit"
		}
		state = fmt.Sprintf("%d %s held, %d left; Redis doesn't know by whom", l.Held, permits, l.Available)
	case l.Mode == "write":
		state = "held by a writer"
	case l.Mode == "read":
		state = fmt.Sprintf("held by %d to read", l.Held)
	case l.Held > 0:
		state = "held"
	}
	row("name", text.Safe(l.Name))
	if l.Held > 0 || l.Waiting > 0 || l.Kind != fleet.Mutex { // a free mutex has no key that shows its kind
		row("kind", string(l.Kind))
	}
	row("state", state)
	if l.Kind == fleet.Semaphore && l.Held > 0 {
		row("next lease left", text.Left(l.Remaining))
	}
	for _, h := range l.Holders {
		row("holder", text.Owner(h.Owner, h.ClientID, h.Redisson))
		row("  owner", text.Safe(h.Owner))
		if l.Mode != "" {
			row("  mode", h.Mode)
		}
		if !h.Since.IsZero() {
			row("  since", h.Since.Format(time.RFC3339)+", for "+text.Age(h.Since, time.Now()))
		}
		if h.Released && h.Remaining >= 0 {
			row("  released", "it stays taken for another "+text.Span(h.Remaining)+" (WithMinHold)")
		} else {
			row("  lease left", text.Left(h.Remaining))
		}
		if h.Token != 0 {
			row("  token", fmt.Sprint(h.Token))
		}
		row("  trace", h.TraceID)
		row("  ", traces.of(h.TraceID))
		if h.Count > 1 {
			row("  entered", fmt.Sprintf("%d times", h.Count))
		}
	}
	if l.Held > len(l.Holders) && len(l.Holders) > 0 {
		row("", fmt.Sprintf("and %d more", l.Held-len(l.Holders)))
	}
	if l.Waiting > 0 || l.Kind != fleet.Number { // the use of most numbers isn't known, so neither are their waiters
		row("waiting", fmt.Sprintf("%d that Redis knows of", l.Waiting))
	}
	for _, waiter := range l.Waiters {
		line := text.Owner(waiter.Owner, waiter.ClientID, waiter.Redisson)
		if !waiter.Since.IsZero() {
			line += ", for " + text.Age(waiter.Since, time.Now())
		}
		if waiter.TraceID != "" {
			line += ", trace " + waiter.TraceID
		}
		row("  waiter", line)
	}
	return rows.String()
}

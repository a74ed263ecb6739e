package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

func (a *app) unlockCommand() *cobra.Command {
	var force, yes bool
	cmd := &cobra.Command{
		Use:   "unlock NAME --force",
		Short: "Take a lock away from its holder",
		Long: `Take a lock away from whoever holds it, wake those who wait, and tell the holder, whose ctx ends some milliseconds later. Until then two may be at work; a command
under lockdog run gets SIGTERM then, and has its --grace (5s) to end. A holder that is stopped or cut off learns of it when it goes on. So end a process that hangs
first, if you can: then the lock is free one lease later, or at once with unlock.

It shows who loses the lock and asks first; --yes doesn't. Never use DEL for this: nobody would be told.

The log has who did it ("lock unlocked by force"), and OTEL_* variables send a span. The holder's log and trace have it, too.

Of a read-write lock all holders lose it. The permits of a semaphore can't be taken away.

Exits with 0 if the lock is free now, also if it was before, and with 1 if the answer is no.`,
		Args: args(1, 1, "NAME --force"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !force {
				return usagef(
					"unlock takes a lock away from a living holder: say that you mean it with --force. 'lockdog who %s' shows who holds it",
					text.Safe(args[0]))
			}
			return a.unlock(cmd.Context(), args[0], yes)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "take it away from a holder that may live")
	cmd.Flags().BoolVar(&yes, "yes", false, "don't ask")
	return cmd
}

func (a *app) unlock(ctx context.Context, name string, yes bool) error {
	server, reader, err := a.reader(ctx)
	if err != nil {
		return err
	}
	l, err := a.toUnlock(ctx, reader, name, yes)
	if err != nil {
		return err
	}
	if l.Held == 0 {
		return a.unlocked(l, false)
	}
	telemetry, stop := a.telemetry(ctx)
	defer stop()
	c, err := a.client(server, telemetry)
	if err != nil {
		return err
	}
	was, err := forceUnlock(ctx, c, l)
	if err = errors.Join(err, c.Close(ctx)); err != nil {
		return err
	}
	return a.unlocked(l, was)
}

// toUnlock returns the lock as it is now, after the user has agreed to take it from its holders. If the holders have
// changed while the user was asked, it shows them and asks again. It doesn't ask if the lock is free, or if yes is
// true. It returns an error for a semaphore or a number: nobody can take these away.
func (a *app) toUnlock(ctx context.Context, reader *fleet.Reader, name string, yes bool) (fleet.Lock, error) {
	var shown []fleet.Holder
	for {
		l, err := reader.Look(ctx, name)
		switch {
		case err != nil:
			return l, unread(ctx, err)
		case l.Kind == fleet.Semaphore, l.Kind == fleet.Number:
			return l, &exitError{code: exitNo, err: fmt.Errorf(
				"%s is a %s: only locks that one holder or readers have can be taken away", text.Safe(name), l.Kind)}
		case l.Held == 0, yes, slices.EqualFunc(shown, l.Holders, func(a, b fleet.Holder) bool {
			return a.Owner == b.Owner && a.Token == b.Token && a.Released == b.Released
		}):
			return l, nil
		case shown != nil:
			_, _ = fmt.Fprintf(a.stderr, "\n%s has changed hands meanwhile\n", text.Safe(name))
		}
		if err := a.confirm(ctx, fmt.Sprintf("%sTake %s away? Its holder may be at work. [y/N] ",
			lockText(l, ""), text.Safe(name))); err != nil {
			return l, err
		}
		shown = l.Holders
	}
}

// forceUnlock takes a lock away with the method of its kind. It reports whether the lock was held.
func forceUnlock(ctx context.Context, c *lock.Client, l fleet.Lock) (bool, error) {
	switch l.Kind {
	case fleet.RW:
		return c.RWMutex(l.Name).ForceUnlock(ctx)
	case fleet.Fair:
		return c.FairMutex(l.Name).ForceUnlock(ctx)
	}
	return c.Mutex(l.Name).ForceUnlock(ctx)
}

// unlocked prints the result. was means that the lock was held.
func (a *app) unlocked(l fleet.Lock, was bool) error {
	outcome := "was free"
	if was {
		outcome = "was taken away from " + text.Holder(l)
	}
	return a.print(text.Safe(l.Name)+" "+outcome+"\n", struct {
		Name     string `json:"name"`
		Unlocked bool   `json:"unlocked"`
	}{l.Name, was})
}

// confirm asks a question. It returns an error unless the answer is yes.
func (a *app) confirm(ctx context.Context, question string) error {
	if _, err := io.WriteString(a.stderr, question); err != nil {
		return err // nobody can have read who loses the lock
	}
	var answer string
	var err error
	answered := make(chan struct{})
	go func() { // it may stay blocked in the read when the program ends
		defer close(answered)
		answer, err = bufio.NewReader(a.stdin).ReadString('\n')
		answer = strings.ToLower(strings.TrimSpace(answer))
	}()
	select {
	case <-answered:
	case <-ctx.Done():
		_, _ = fmt.Fprintln(a.stderr)
		return signaled(ctx)
	}
	switch {
	case answer == "y" || answer == "yes":
		return nil
	case err != nil && answer == "":
		_, _ = fmt.Fprintln(a.stderr)
		return usagef("nobody answered: nothing was done. Without a terminal, add --yes")
	}
	return &exitError{code: exitNo, err: errors.New("nothing was done")}
}

// client returns a lock.Client with an id for this user, host and process.
func (a *app) client(server *connect.Server, t *otelsetup.Providers, opts ...lock.Option) (*lock.Client, error) {
	return lock.New(server.UniversalClient, append([]lock.Option{
		lock.WithClientID(clientID()), lock.WithKeyPrefix(server.Prefix),
		lock.WithTracerProvider(t.TracerProvider), lock.WithMeterProvider(t.MeterProvider), lock.WithLogger(t.Logger),
	}, opts...)...)
}

// clientID returns "user@host/pid", for the holder of a lock and for the log of a forced unlock.
func clientID() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return strings.ReplaceAll(name+"@"+host+"/"+strconv.Itoa(os.Getpid()), ":", "-")
}

// Command leader elects one of two processes with nothing but a Mutex: to campaign is Lock, to lead is to do all with the
// lease's Context, to resign is Release, and who leads is what Inspect says.
//
//	go run ./examples/leader
//
// It needs nothing installed: the Redis it talks to is embedded, and the processes are two clients in this one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
)

// office is what they compete for. The successor of a leader that dies is elected a second later.
func office(c *lock.Client) *lock.Mutex {
	return c.Mutex("leader:reports", lock.WithWatchdog(time.Second))
}

// serve campaigns, and leads when elected, until it is deposed or resign is closed.
func serve(ctx context.Context, c *lock.Client, elected chan<- *lock.Lease, resign <-chan struct{}) error {
	term, err := office(c).Lock(ctx) // waits for its turn, and costs nothing meanwhile
	if err != nil {
		return err
	}
	elected <- term
	select { // a real leader works with term.Context() now, and gives term.Token() to what it writes to
	case <-term.Context().Done():
		return context.Cause(term.Context())
	case <-resign:
		return term.Release(ctx) // else the office is vacant until the lease ends
	}
}

// leader says who leads, as anybody can ask. An owner is "<client id>:<random>-<seq>".
func leader(ctx context.Context, c *lock.Client) string {
	h, _ := office(c).Inspect(ctx) // nobody, as far as is known
	return strings.Split(h.Owner, ":")[0]
}

func story(ctx context.Context, out io.Writer, north, south *lock.Client) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	terms, resign := make(chan *lock.Lease), make(chan struct{})
	campaign := func(c *lock.Client) <-chan error {
		result := make(chan error, 1)
		go func() { result <- serve(ctx, c, terms, resign) }()
		return result
	}
	northEnds, first := campaign(north), <-terms
	say("elected: %s", leader(ctx, south))
	southEnds := campaign(south) // waits
	resign <- struct{}{}
	say("north resigns: %v", <-northEnds)
	second := <-terms
	say("elected: %s", leader(ctx, north))
	northEnds = campaign(north)
	_, err := office(north).ForceUnlock(ctx) // an operator's doing
	say("south is deposed, and knows: %v", errors.Is(<-southEnds, lock.ErrLost))
	third := <-terms
	say("elected: %s; each term has a larger token: %v", leader(ctx, south), first.Token() < second.Token() && second.Token() < third.Token())
	close(resign)
	return errors.Join(err, <-northEnds)
}

func run(ctx context.Context, out io.Writer) error {
	mini, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer mini.Close()
	mini.ClockTTL(true) // else leases would never run out
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	quiet := lock.WithLogger(slog.New(slog.DiscardHandler)) // the story tells of the loss
	north, err := lock.New(rdb, lock.WithClientID("north"), quiet)
	south, serr := lock.New(rdb, lock.WithClientID("south"), quiet)
	if err = errors.Join(err, serr); err == nil {
		err = errors.Join(story(ctx, out, north, south), north.Close(ctx), south.Close(ctx))
	}
	return errors.Join(err, rdb.Close())
}

func main() {
	flag.Parse() // there are none
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

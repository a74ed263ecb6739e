// Command leader elects one of two processes with package lock/leader: Run campaigns and leads. If it is deposed, it
// campaigns again.
//
//	go run ./examples/leader
//
// It needs nothing installed: it has an embedded Redis, and the processes are two clients in this one.
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
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/leader"
)

// office returns the lock of the election. If a leader dies, its successor is elected up to ten seconds later.
func office(c *lock.Client) *lock.Mutex {
	return c.Mutex("leader:reports", lock.WithLease(10*time.Second))
}

// term is what a leader reports to the story.
type term struct {
	leader string
	token  int64
}

// serve campaigns, and leads when it is elected, until it resigns, ctx ends or the client is closed.
func serve(
	ctx context.Context, id string, c *lock.Client, terms chan<- term, deposed chan<- error, resign <-chan struct{},
) error {
	return leader.Run(ctx, office(c), func(ctx context.Context) error {
		// A real leader would work with ctx now, and pass the token to the systems that it writes to.
		terms <- term{id, leader.Token(ctx)}
		select {
		case <-ctx.Done():
			return context.Cause(ctx) // Run campaigns again, unless its own ctx has ended or the client is closed
		case <-resign:
			return nil // Run releases the lock, and returns
		}
	}, leader.OnDeposed(func(cause error) { deposed <- cause }), leader.WithLogger(slog.New(slog.DiscardHandler)))
}

func story(ctx context.Context, out io.Writer, north, south *lock.Client) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	terms, deposed, resign := make(chan term), make(chan error, 4), make(chan struct{})
	campaign := func(id string, c *lock.Client) <-chan error {
		result := make(chan error, 1)
		go func() { result <- serve(ctx, id, c, terms, deposed, resign) }()
		return result
	}
	northEnds, first := campaign("north", north), <-terms
	say("elected: %s", first.leader)
	southEnds := campaign("south", south) // waits
	resign <- struct{}{}
	say("north resigns: %v", errors.Join(<-northEnds, <-deposed))
	second := <-terms
	say("elected: %s", second.leader)
	northEnds = campaign("north", north)
	_, err := office(north).ForceUnlock(ctx) // as an operator may do
	say("south is deposed, and knows: %v", errors.Is(<-deposed, lock.ErrLost))
	third := <-terms // south pauses before it campaigns again
	say("elected: %s; each term has a larger token: %v", third.leader,
		first.token < second.token && second.token < third.token)
	stop()
	for _, ends := range []<-chan error{northEnds, southEnds} {
		if e := <-ends; !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func run(ctx context.Context, out io.Writer) error {
	mini, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer mini.Close()
	mini.ClockTTL(true) // without it leases never run out
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	quiet := lock.WithLogger(slog.New(slog.DiscardHandler)) // the story prints the loss
	north, err := lock.New(rdb, lock.WithClientID("north"), quiet)
	south, serr := lock.New(rdb, lock.WithClientID("south"), quiet)
	if err = errors.Join(err, serr); err == nil {
		err = errors.Join(story(ctx, out, north, south), north.Close(ctx), south.Close(ctx))
	}
	return errors.Join(err, rdb.Close())
}

func main() {
	flag.Parse() // rejects flags: there are none
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

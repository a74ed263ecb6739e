// Command fencing shows what tokens are for: a holder that is paused for longer than its lease goes on as if nothing had been,
// while somebody else has the lock, and only the store that is written to can stop it.
//
//	go run ./examples/fencing
//
// It needs nothing installed: the Redis it talks to is embedded, and the workers are two clients in this process.
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
)

// account is what the lock protects. It takes no write of a holder that came before one whose write it has.
//
// In SQL it is a column: UPDATE accounts SET balance = $1, token = $2 WHERE id = $3 AND token <= $2; no row changed means refused.
type account struct{ balance, token int64 }

var errStale = errors.New("refused: a later holder has written")

func (a *account) write(balance, token int64) error {
	if token < a.token {
		return errStale
	}
	a.balance, a.token = balance, token
	return nil
}

// story has alice add 50, and bob 7, to what each reads. What one of them reads the other mustn't overwrite.
func story(ctx context.Context, out io.Writer, alice, bob *lock.Client) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	acct := &account{balance: 100}

	// Alice's process will stop: a suspended virtual machine, kill -STOP. Her lock isn't renewed then, as if its lease were fixed.
	hers, err := alice.Mutex("account:7", lock.WithFixedLease(300*time.Millisecond)).Lock(ctx)
	if err != nil {
		return err
	}
	read := acct.balance
	say("alice has the lock, reads %d, and stops", read)

	his, err := bob.Mutex("account:7").Lock(ctx) // waits until her lease is over
	if err != nil {
		return err
	}
	err = acct.write(acct.balance+7, his.Token())
	say("bob has the lock, and adds 7: %d, %v", acct.balance, err)

	// She goes on with the next line of her program, which happens to be the write.
	err = acct.write(read+50, hers.Token())
	say("alice goes on, and writes %d: %v", read+50, err)
	say("the balance is %d", acct.balance)
	if !errors.Is(err, errStale) {
		return fmt.Errorf("the account took a stale write: %w", err)
	}

	// Had she looked at her Context first, she would have seen; but between a look and a write there is always time to stop.
	say("her Context had ended: %v", context.Cause(hers.Context()))
	if err := hers.Release(ctx); !errors.Is(err, lock.ErrLost) {
		return err
	}
	return his.Release(ctx)
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
	alice, err := lock.New(rdb, quiet)
	bob, berr := lock.New(rdb, quiet)
	if err = errors.Join(err, berr); err == nil {
		err = errors.Join(story(ctx, out, alice, bob), alice.Close(ctx), bob.Close(ctx))
	}
	return errors.Join(err, rdb.Close())
}

func main() {
	flag.Parse() // there are none
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

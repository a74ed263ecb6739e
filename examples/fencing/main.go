// Command fencing shows why tokens are needed. A holder that is paused for longer than its lease continues as if
// nothing had happened, while another holds the lock. Only the store that it writes to can stop it.
//
//	go run ./examples/fencing
//
// It needs nothing installed: it has an embedded Redis, and the workers are two clients in this process.
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

// account is what the lock protects. It rejects a write by an earlier holder than the last writer.
//
// In SQL the token is a column: UPDATE accounts SET balance = $1, token = $2 WHERE id = $3 AND token <= $2; no row
// changed means rejected.
type account struct{ balance, token int64 }

var errStale = errors.New("refused: a later holder has written")

func (a *account) write(balance, token int64) error {
	if token < a.token {
		return errStale
	}
	a.balance, a.token = balance, token
	return nil
}

// story: alice adds 50 and bob adds 7 to the balance that each has read. Neither may overwrite the other's change.
func story(ctx context.Context, out io.Writer, alice, bob *lock.Client) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	acct := &account{balance: 100}

	// Alice's process will stop, as a suspended virtual machine or after kill -STOP. Then her lease isn't renewed. A
	// fixed lease simulates that.
	hers, err := alice.Mutex("account:7", lock.WithFixedLease(300*time.Millisecond)).Lock(ctx)
	if err != nil {
		return err
	}
	read := acct.balance
	say("alice has the lock, reads %d, and stops", read)

	his, err := bob.Mutex("account:7").Lock(ctx) // waits until her lease has run out
	if err != nil {
		return err
	}
	err = acct.write(acct.balance+7, his.Token())
	say("bob has the lock, and adds 7: %d, %v", acct.balance, err)

	// Alice continues with the next line of her program, which is the write.
	err = acct.write(read+50, hers.Token())
	say("alice goes on, and writes %d: %v", read+50, err)
	say("the balance is %d", acct.balance)
	if !errors.Is(err, errStale) {
		return fmt.Errorf("the account took a stale write: %w", err)
	}

	// If she had checked her Context before the write, she would have noticed. But a process may stop between the check
	// and the write.
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
	mini.ClockTTL(true) // without it leases never run out
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	quiet := lock.WithLogger(slog.New(slog.DiscardHandler)) // the story prints the loss
	alice, err := lock.New(rdb, quiet)
	bob, berr := lock.New(rdb, quiet)
	if err = errors.Join(err, berr); err == nil {
		err = errors.Join(story(ctx, out, alice, bob), alice.Close(ctx), bob.Close(ctx))
	}
	return errors.Join(err, rdb.Close())
}

func main() {
	flag.Parse() // rejects flags: there are none
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

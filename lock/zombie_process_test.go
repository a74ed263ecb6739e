package lock_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Zombies in processes of their own: holders that are stuck, or stopped, and don't know it.

const zombieLease = 8 * time.Second // a busy machine has the child renewed in time

// processClient opens a client, with all its telemetry, in a child. Without a test there is nobody to clean up after.
func processClient(addr, prefix string, opts ...lock.Option) (*scope, *redis.Client, *lock.Client, error) {
	s := newScope(orphan{})
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	c, err := lock.New(rdb, append([]lock.Option{
		lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter), lock.WithLogger(s.log), lock.WithKeyPrefix(prefix),
	}, opts...)...)
	return s, rdb, c, err
}

// orphan stands for the test in a child: what would fail it ends the process.
type orphan struct{ testing.TB }

func (orphan) Helper()        {}
func (orphan) Cleanup(func()) {}
func (orphan) Fatal(a ...any) { panic(a) }

// A process that is stopped for longer than its lease, and goes on: its context has ended when it asks, the store refuses its write, its
// Release says so, and it is counted as stalled.
func TestStoppedProcessIsRefused(t *testing.T) {
	t.Parallel()
	sp := redistest.Shared(t)
	ch := startChild(t, "zombie", sp.Addr(), sp.Prefix())
	var newest int64 // what a store remembers: the largest token that it has seen
	write := func(token int64) string {
		if token < newest {
			return "refused"
		}
		newest = token
		return "written"
	}
	written := func() string {
		t.Helper()
		line := await(t, "the child's write", ch.lines)
		token, err := strconv.ParseInt(strings.TrimPrefix(line, "write "), 10, 64)
		if err != nil {
			t.Fatalf("the child says %q", line)
		}
		return write(token)
	}
	ch.tell(t, written())
	ch.expect(t, "renewed, the store says: written")
	ch.stop(t)
	c := newScope(t).open(t, sp.Client(t), lock.WithKeyPrefix(sp.Prefix()))
	heir := granted(t, begin(t.Context(), c.Mutex("zombie")))
	if got := write(heir.Token()); got != "written" {
		t.Errorf("the heir's write: %s", got)
	}
	ch.resume(t)
	ch.tell(t, "go on")
	ch.expect(t, "lost: stalled")
	ch.tell(t, written())
	ch.expect(t, "the store says: refused")
	ch.expect(t, "released: true, counted 1, logged 1")
	free(t, heir) // its lock is untouched by that release
	ch.wait(t)
}

// childZombie takes the lock and writes; is told to go on, looks at its context, writes again all the same, and releases.
func childZombie(addr, prefix string, say func(string, ...any)) error {
	s, rdb, c, err := processClient(addr, prefix, lock.WithLease(zombieLease))
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	defer closeSoon(c)
	l, err := c.Mutex("zombie").TryLock(context.Background())
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	hear := func() string {
		line, _ := in.ReadString('\n')
		return strings.TrimSpace(line)
	}
	work := l.Context()
	say("write %d", l.Token())
	answer := hear()
	// No renewal may be on its way when we are stopped: that would be a server that doesn't answer.
	for start := l.Deadline(); !l.Deadline().After(start); {
		<-time.After(time.Millisecond)
	}
	say("renewed, the store says: %s", answer)
	_ = hear() // stopped here
	ended := work.Err()
	var lost *lock.LostError
	if !errors.As(context.Cause(work), &lost) {
		say("%v, for %v", ended, context.Cause(work))
		return nil
	}
	say("lost: %s", lost.Cause)
	say("write %d", l.Token())
	say("the store says: %s", hear())
	err = l.Release(context.Background())
	logged := s.logged(telemetry.LogLost) // the loss is counted before
	say("released: %v, counted %v, logged %d", errors.Is(err, lock.ErrLost),
		s.sum(orphan{}, telemetry.MetricLosses, "lockdog.cause=stalled"), logged)
	return nil
}

// logged is how many records of one kind there are, once there is one.
func (s *scope) logged(kind telemetry.Log) int {
	for end := time.Now().Add(stretched(patience)); time.Now().Before(end); <-time.After(time.Millisecond) {
		if n := len(s.records(orphan{}, kind)); n > 0 {
			return n
		}
	}
	return 0
}

package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// openTapped returns a client of the fake, whose renewals go through the tap, too. The test's end closes it, and abandons what it
// still holds.
func openTapped(t *testing.T, srv *redistest.Fake, tap fakeredis.Tap, opts ...lock.Option) *lock.Client {
	t.Helper()
	rdb := srv.Client(t)
	rdb.AddHook(tap)
	return open(t, rdb, append(opts, lock.WithRenewalClient(rdb))...)
}

// openBehind returns a client of the fake behind a proxy.
func openBehind(t *testing.T, srv *redistest.Fake, p *redistest.Proxy, opts ...lock.Option) *lock.Client {
	t.Helper()
	return open(t, srv.Client(t, func(o *redis.Options) { o.Addr = p.Addr() }), opts...)
}

func open(t *testing.T, rdb redis.UniversalClient, opts ...lock.Option) *lock.Client {
	t.Helper()
	c, err := lock.New(rdb, append([]lock.Option{lock.WithLogger(silent)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(c) })
	return c
}

// isEval reports whether a command runs a script.
func isEval(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }

var errReset = errors.New("connection reset by peer")

// cutWhile returns a tap that lets no command through while cut is set.
func cutWhile(cut *atomic.Bool) fakeredis.Tap {
	return fakeredis.Tap{Up: func(redis.Cmder) error {
		if cut.Load() {
			return errReset
		}
		return nil
	}}
}

// del deletes a key, which tells nobody.
func del(t *testing.T, srv *redistest.Fake, key string) {
	t.Helper()
	must(t, "DEL", srv.Client(t).Del(t.Context(), key).Err())
}

// holderOf is the owner that holds a lock, "" if it is free.
func holderOf(rdb *redis.Client, name string) (owner string) {
	for _, field := range rdb.HKeys(context.Background(), name).Val() {
		if field != "@lockdog" && field != "mode" {
			owner = field
		}
	}
	return owner
}

// lose does something to a lock at a server, and has the holder look.
func lose(t *testing.T, srv *redistest.Fake, name string, how func(*redis.Client)) {
	t.Helper()
	rdb := srv.Client(t)
	owner := holderOf(rdb, name)
	how(rdb)
	if controlOf(owner) != "" {
		haveLook(t, rdb, owner)
	}
}

// controlOf is the channel on which an owner's client is told to look at its locks, "" for a stranger.
func controlOf(owner string) string {
	if i := strings.LastIndexByte(owner, '-'); i > 0 {
		return "lockdog:control:" + owner[:i]
	}
	return ""
}

// haveLook has an owner renew its lease at once, as after a forced unlock.
func haveLook(t *testing.T, rdb redis.UniversalClient, owner string) {
	t.Helper()
	must(t, "PUBLISH", rdb.Publish(context.Background(), controlOf(owner), owner).Err())
}

// gate lets nobody through until it is opened.
type gate struct{ reached, opened chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}, 1), make(chan struct{})} }

// pass waits at the gate.
func (g *gate) pass() {
	select {
	case g.reached <- struct{}{}:
	default:
	}
	<-g.opened
}

// isOpen reports whether it is.
func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// sleepUntil sleeps until then, in a bubble.
func sleepUntil(then time.Time) { time.Sleep(time.Until(then)) }

package lock_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What the tests of unclear outcomes share: a trap on the wire, and one name with all who hold it.

// mishap is what becomes of a request or of its answer.
type mishap struct {
	name    string
	dir     redistest.Direction
	verdict func(rng *rand.Rand, size int) redistest.Verdict
}

func fixed(v redistest.Verdict) func(*rand.Rand, int) redistest.Verdict {
	return func(*rand.Rand, int) redistest.Verdict { return v }
}

func inTheMiddle(rng *rand.Rand, size int) redistest.Verdict {
	return redistest.Truncate(rng.IntN(size))
}

var mishaps = []mishap{
	{"request dropped", redistest.Up, fixed(redistest.Drop)},
	{"request held", redistest.Up, fixed(redistest.Hold)}, // past every timeout, then delivered
	{"request cut", redistest.Up, inTheMiddle},
	{"request reset", redistest.Up, fixed(redistest.Cut)},
	{"reply dropped", redistest.Down, fixed(redistest.Drop)},
	{"reply held", redistest.Down, fixed(redistest.Hold)},
	{"reply cut", redistest.Down, inTheMiddle},
	{"reply reset", redistest.Down, fixed(redistest.Cut)},
}

// trap gives a mishap to the next requests that it is set for.
type trap struct {
	mu      sync.Mutex
	rng     *rand.Rand
	catches func(redistest.Chunk) bool // nil: it isn't set
	mishap  mishap
	left    int
	caught  int
	asked   map[int]bool // connections whose next answer is meant
}

// set has the trap catch so many requests, or their answers.
func (tr *trap) set(m mishap, times int, catches func(redistest.Chunk) bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.mishap, tr.left, tr.caught, tr.catches = m, times, 0, catches
	tr.asked = make(map[int]bool)
}

func (tr *trap) unset() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.catches = nil
}

func (tr *trap) hits() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.caught
}

// spent reports whether the trap has caught all it was set for.
func (tr *trap) spent() bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.left == 0
}

// rule is the proxy's.
func (tr *trap) rule(c redistest.Chunk) redistest.Verdict {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch {
	case tr.catches == nil:
		return redistest.Pass
	case c.Dir == redistest.Up && tr.left > 0 && tr.catches(c):
		tr.left--
		if tr.mishap.dir == redistest.Down {
			tr.asked[c.Conn] = true
			return redistest.Pass
		}
	case c.Dir == redistest.Down && tr.asked[c.Conn]:
		delete(tr.asked, c.Conn)
	default:
		return redistest.Pass
	}
	tr.caught++
	return tr.mishap.verdict(tr.rng, len(c.Data))
}

// tally counts what callers were told, to be compared with what telemetry says.
type tally struct {
	locks, grants, tellings            atomic.Int64
	released, lostReleases, unreleased atomic.Int64
}

// lane is one name, a client whose wire has a trap, and a client of another process whose wire is sound.
type lane struct {
	*tally
	t       *testing.T
	name    string
	rng     *rand.Rand
	wire    *wireTap
	trap    *trap
	rdb     *redis.Client // sound
	a, b    *lock.Client
	running string // what is being tried, for messages

	mu    sync.Mutex
	live  []*lock.Lease
	token int64
}

// tellTwice fails the test if two Contexts of the name live at one time. None comes to life again, so if two are found
// alive one after the other, the second was when the first was.
func (ln *lane) tellTwice() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	var alive []*lock.Lease
	for _, l := range ln.live {
		if l.Context().Err() == nil {
			alive = append(alive, l)
		}
	}
	if len(alive) > 1 {
		ln.t.Errorf("%s: %s and %s hold the lock at one time", ln.running, alive[0].Owner(), alive[1].Owner())
	}
	ln.live = alive
}

// lock takes the lock through a client.
func (ln *lane) lock(ctx context.Context, c *lock.Client) (*lock.Lease, error) {
	ln.locks.Add(1)
	l, err := c.Mutex(ln.name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	ln.grants.Add(1)
	ln.mu.Lock()
	ln.live = append(ln.live, l)
	if l.Context().Err() == nil { // else a later grant may have been noted before
		if l.Token() <= ln.token {
			ln.t.Errorf("%s: token %d after %d", ln.running, l.Token(), ln.token)
		}
		ln.token = l.Token()
	}
	ln.mu.Unlock()
	ln.tellTwice()
	return l, nil
}

// take is lock while nothing is in the way.
func (ln *lane) take(c *lock.Client) *lock.Lease {
	l, err := ln.lock(context.Background(), c)
	if err != nil {
		ln.t.Errorf("%s: Lock: %v", ln.running, err)
		runtime.Goexit()
	}
	return l
}

// begin is lock on another goroutine.
func (ln *lane) begin(ctx context.Context, c *lock.Client) <-chan taken {
	got := make(chan taken, 1)
	go func() {
		l, err := ln.lock(ctx, c)
		got <- taken{l, err}
	}()
	return got
}

// release gives a lease back, with the patience of one lease.
func (ln *lane) release(l *lock.Lease) error {
	err := l.Release(context.Background())
	switch {
	case err == nil:
		ln.released.Add(1)
	case errors.Is(err, lock.ErrLost):
		ln.lostReleases.Add(1)
	default:
		ln.unreleased.Add(1)
	}
	return err
}

// served waits for a waiter that must get the lock, and gives it back. One that was told that Redis doesn't answer asks
// again: that is no way to be left behind.
func (ln *lane) served(who string, c *lock.Client, got <-chan taken) {
	limit := time.After(patience)
	for {
		select {
		case got := <-got:
			if got.err == nil {
				ln.told("the Release of "+who, ln.release(got.Lease))
				return
			}
			ln.told(who, got.err)
		case <-limit:
			ln.t.Errorf("%s: %s was left behind", ln.running, who)
			return
		}
		got = ln.begin(context.Background(), c)
	}
}

// told counts who was told that Redis didn't answer, or that the lease was lost. No other error will do.
func (ln *lane) told(who string, err error) {
	var ne net.Error
	switch {
	case err == nil:
	case errors.As(err, &ne), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, lock.ErrLost):
		ln.tellings.Add(1)
	default:
		ln.t.Errorf("%s: %s: %v", ln.running, who, err)
	}
}

// compare checks that spans and counters tell one outcome of each operation, and the one that the caller was told.
func (sum *tally) compare(t *testing.T, scopes [2]*scope) {
	t.Helper()
	equal := func(what string, got float64, want int64) {
		if int64(got) != want {
			t.Errorf("%s: telemetry says %v, the callers %d", what, got, want)
		}
	}
	counted := func(m telemetry.Metric, labels ...string) float64 {
		return scopes[0].sum(t, m, labels...) + scopes[1].sum(t, m, labels...)
	}
	spans := func(name string) float64 {
		return float64(len(scopes[0].spansNamed(name)) + len(scopes[1].spansNamed(name)))
	}
	locks, grants := sum.locks.Load(), sum.grants.Load()
	equal("acquisitions", counted(telemetry.MetricAcquisitions), locks)
	equal("acquired", counted(telemetry.MetricAcquisitions, "lockdog.outcome=acquired"), grants)
	equal("acquire durations", counted(telemetry.MetricAcquireDuration), locks)
	equal("acquire spans", spans("acquire unclear"), locks)
	equal("held spans", spans("held unclear"), grants)
	equal("released", counted(telemetry.MetricReleases, "lockdog.outcome=released"), sum.released.Load())
	equal("releases that failed", counted(telemetry.MetricReleases, "lockdog.outcome=error"), sum.unreleased.Load())
	equal("release spans", spans("release unclear"), int64(counted(telemetry.MetricReleases)))
	equal("release durations", counted(telemetry.MetricReleaseDuration), int64(counted(telemetry.MetricReleases)))
	// A lease that was known to be lost isn't sent for release.
	if n := counted(telemetry.MetricReleases, "lockdog.outcome=lost"); int64(n) > sum.lostReleases.Load() {
		t.Errorf("%v releases counted as lost, %d callers were told", n, sum.lostReleases.Load())
	}
	equal("losses", counted(telemetry.MetricLosses), sum.lostReleases.Load())
	equal("lost spans", spans("lost unclear"), sum.lostReleases.Load())
	equal("ends of holds", counted(telemetry.MetricHoldDuration), grants)
	equal("hold spans", spans("hold unclear"), grants)
	for _, gauge := range []telemetry.Metric{telemetry.MetricHeld, telemetry.MetricWaiting, telemetry.MetricWatchdogLeases} {
		equal(gauge.Name, counted(gauge), 0)
	}
}
